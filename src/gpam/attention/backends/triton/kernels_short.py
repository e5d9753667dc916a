"""Rows of few keys: one program a head holds all of it, and P is combined before the one product with V.

    forward   P = sum_j c_j P_j,   O = P V
    backward  G = dO V^T,   delta_j = rowsum(P_j * G),   T_j = c_j P_j (G - delta_j),   dQ_j = s T_j K,
              dK = s sum_j T_j^T Q_j,   dV = P^T dO,   dc_j = delta_j

With dropout P_j in O, dV and delta_j, and G in T_j, carry the factors 0 and 1/(1-p).
"""

import triton
import triton.language as tl

from gpam.attention.backends.triton.common import (
    dropout_factors,
    load_rows,
    masked_scores,
    product,
    store_rows,
    visible_keys,
)


@triton.jit
def _probabilities(q, k, visible, scale):
    scores = masked_scores(q, k, visible, scale)
    top = tl.max(scores, 1)
    exponentials = tl.exp2(scores - tl.where(top == float("-inf"), 0.0, top)[:, None])
    total = tl.sum(exponentials, 1)
    return exponentials / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def forward(
    Q0, Q1, K0, K1, V, WEIGHTS, PADDING, OUT,
    q0_batch, q0_head, q0_row, q1_batch, q1_head, q1_row, k0_batch, k0_head, k0_row, k1_batch, k1_head, k1_row,
    v_batch, v_head, v_row, out_batch, out_head, out_row, weight_head, weight_row,
    heads, programs, target, source, head_dim, value_dim, scale, seed, dropout,
    TWO: tl.constexpr, TWO_KEYS: tl.constexpr, CAUSAL: tl.constexpr, PADDED: tl.constexpr, DROPOUT: tl.constexpr,
    DROP_SUM: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(0).to(tl.int64)
    b, h = z // heads, z % heads
    rows, keys, d, dv = tl.arange(0, ROWS), tl.arange(0, KEYS), tl.arange(0, D), tl.arange(0, DV)
    visible = visible_keys(rows, keys, target, source, PADDING + b * source, CAUSAL, PADDED)
    k = load_rows(K0 + b * k0_batch + h * k0_head, keys, d, k0_row, source, head_dim)
    v = load_rows(V + b * v_batch + h * v_head, keys, dv, v_row, source, value_dim)
    inside = rows < target
    q = load_rows(Q0 + b * q0_batch + h * q0_head, rows, d, q0_row, target, head_dim)
    weight = tl.load(WEIGHTS + z * weight_head + rows * weight_row, mask=inside, other=0.0)
    combined = weight[:, None] * _probabilities(q, k, visible, scale)
    if DROPOUT and not DROP_SUM:
        combined = combined * dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, False)
    if TWO:
        if TWO_KEYS:
            k = load_rows(K1 + b * k1_batch + h * k1_head, keys, d, k1_row, source, head_dim)
        q = load_rows(Q1 + b * q1_batch + h * q1_head, rows, d, q1_row, target, head_dim)
        weight = tl.load(WEIGHTS + (programs + z) * weight_head + rows * weight_row, mask=inside, other=0.0)
        second = weight[:, None] * _probabilities(q, k, visible, scale)
        if DROPOUT and not DROP_SUM:
            second = second * dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, True)
        combined += second
    if DROPOUT and DROP_SUM:
        combined = combined * dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, False)
    out = product(combined.to(v.dtype), v)
    store_rows(OUT + b * out_batch + h * out_head, out, rows, dv, out_row, target, value_dim)


@triton.jit
def _branch(q, k, g, visible, scale, weight, factors, DROPOUT: tl.constexpr):
    """``c P`` dropped out, ``T`` and ``delta`` of a branch."""
    p = _probabilities(q, k, visible, scale)
    own = g
    if DROPOUT:
        own = g * factors
    delta = tl.sum(p * own, 1)
    t = weight[:, None] * p * (own - delta[:, None])
    if DROPOUT:
        p = p * factors
    return weight[:, None] * p, t.to(q.dtype), delta


@triton.jit
def backward(
    Q0, Q1, K0, K1, V, WEIGHTS, PADDING, GRAD, DELTA, DQ0, DQ1, DK0, DK1, DV_OUT,
    q0_batch, q0_head, q0_row, q1_batch, q1_head, q1_row, k0_batch, k0_head, k0_row, k1_batch, k1_head, k1_row,
    v_batch, v_head, v_row, grad_batch, grad_head, grad_row, weight_head, weight_row,
    heads, programs, target, source, head_dim, value_dim, scale, plain_scale, seed, dropout,
    TWO: tl.constexpr, TWO_KEYS: tl.constexpr, CAUSAL: tl.constexpr, PADDED: tl.constexpr, DROPOUT: tl.constexpr,
    DROP_SUM: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    z = tl.program_id(0).to(tl.int64)
    b, h = z // heads, z % heads
    rows, keys, d, dv = tl.arange(0, ROWS), tl.arange(0, KEYS), tl.arange(0, D), tl.arange(0, DV)
    visible = visible_keys(rows, keys, target, source, PADDING + b * source, CAUSAL, PADDED)
    k = load_rows(K0 + b * k0_batch + h * k0_head, keys, d, k0_row, source, head_dim)
    v = load_rows(V + b * v_batch + h * v_head, keys, dv, v_row, source, value_dim)
    grad = load_rows(GRAD + b * grad_batch + h * grad_head, rows, dv, grad_row, target, value_dim)
    g = product(grad, tl.trans(v))
    inside = rows < target
    factors = 1.0
    if DROPOUT:
        factors = dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, False)
    q = load_rows(Q0 + b * q0_batch + h * q0_head, rows, d, q0_row, target, head_dim)
    weight = tl.load(WEIGHTS + z * weight_head + rows * weight_row, mask=inside, other=0.0)
    combined, t, change = _branch(q, k, g, visible, scale, weight, factors, DROPOUT)
    dk = product(tl.trans(t), q)
    store_rows(DQ0 + z * target * head_dim, product(t, k) * plain_scale, rows, d, head_dim, target, head_dim)
    tl.store(DELTA + z * target + rows, change, mask=inside)
    if TWO:
        if TWO_KEYS:
            store_rows(DK0 + z * source * head_dim, dk * plain_scale, keys, d, head_dim, source, head_dim)
            dk = tl.zeros([KEYS, D], tl.float32)
            k = load_rows(K1 + b * k1_batch + h * k1_head, keys, d, k1_row, source, head_dim)
        if DROPOUT and not DROP_SUM:
            factors = dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, True)
        q = load_rows(Q1 + b * q1_batch + h * q1_head, rows, d, q1_row, target, head_dim)
        weight = tl.load(WEIGHTS + (programs + z) * weight_head + rows * weight_row, mask=inside, other=0.0)
        second, t, change = _branch(q, k, g, visible, scale, weight, factors, DROPOUT)
        combined += second
        dk += product(tl.trans(t), q)
        store_rows(DQ1 + z * target * head_dim, product(t, k) * plain_scale, rows, d, head_dim, target, head_dim)
        tl.store(DELTA + (programs + z) * target + rows, change, mask=inside)
    last = DK1 if TWO_KEYS else DK0
    store_rows(last + z * source * head_dim, dk * plain_scale, keys, d, head_dim, source, head_dim)
    dv_sum = product(tl.trans(combined.to(grad.dtype)), grad)
    store_rows(DV_OUT + z * source * value_dim, dv_sum, keys, dv, value_dim, source, value_dim)
