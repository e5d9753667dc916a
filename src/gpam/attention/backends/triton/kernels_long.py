"""Rows of any length, streamed in blocks of keys.

    forward   l_j, O_j by running maximum and sum;   O = sum_j c_j O_j,   L_j = log2-sum-exp2
    delta     delta_j = rowsum(dO * O_j), which is also the gradient of c_j
    backward  one program a block of keys:  P_j = exp2(S_j - L_j),   dV = (sum_j c_j P_j)^T dO,   G = dO V^T,
              T_j = c_j P_j (G - delta_j),   dK = s sum_j T_j^T Q_j,   dQ_j += s T_j K  (float32 atomics)

With dropout P_j in O_j and dV, and G in T_j, carry the factors 0 and 1/(1-p); l_j does not.
"""

import triton
import triton.language as tl

from gpam.attention.backends.triton.common import (
    dropout_factors,
    load_rows,
    masked_scores,
    place,
    product,
    store_rows,
    visible_keys,
)


@triton.jit
def _advance(q, k, v, visible, scale, factors, top, total, out, DROPOUT: tl.constexpr):
    """One block of keys more: the running maximum, sum and (unnormalised) output of a branch."""
    scores = masked_scores(q, k, visible, scale)
    new_top = tl.maximum(top, tl.max(scores, 1))
    safe_top = tl.where(new_top == float("-inf"), 0.0, new_top)
    exponentials = tl.exp2(scores - safe_top[:, None])
    shrink = tl.exp2(top - safe_top)
    total = total * shrink + tl.sum(exponentials, 1)
    if DROPOUT:
        exponentials = exponentials * factors
    out = out * shrink[:, None] + product(exponentials.to(v.dtype), v)
    return new_top, total, out


@triton.jit
def _finish(top, total, out):
    """The output and the log2-sum-exp2; a row that sees nothing has 0 and +inf, so that its P is zero."""
    empty = total == 0.0
    safe = tl.where(empty, 1.0, total)
    return out / safe[:, None], tl.where(empty, float("inf"), top + tl.log2(safe))


@triton.jit
def forward(
    Q0, Q1, K0, K1, V, WEIGHTS, PADDING, OUT, OUT0, OUT1, LSE,
    q0_batch, q0_head, q0_row, q1_batch, q1_head, q1_row, k0_batch, k0_head, k0_row, k1_batch, k1_head, k1_row,
    v_batch, v_head, v_row, out_batch, out_head, out_row, weight_head, weight_row,
    heads, programs, target, source, head_dim, value_dim, scale, seed, dropout,
    TWO: tl.constexpr, TWO_KEYS: tl.constexpr, CAUSAL: tl.constexpr, PADDED: tl.constexpr, DROPOUT: tl.constexpr,
    DROP_SUM: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    z, block = place(target, ROWS)
    b, h = z // heads, z % heads
    rows = block * ROWS + tl.arange(0, ROWS)
    d, dv = tl.arange(0, D), tl.arange(0, DV)
    q0 = load_rows(Q0 + b * q0_batch + h * q0_head, rows, d, q0_row, target, head_dim)
    top0, total0 = tl.full([ROWS], float("-inf"), tl.float32), tl.zeros([ROWS], tl.float32)
    out0 = tl.zeros([ROWS, DV], tl.float32)
    if TWO:
        q1 = load_rows(Q1 + b * q1_batch + h * q1_head, rows, d, q1_row, target, head_dim)
        top1, total1, out1 = top0, total0, out0
    end = source
    if CAUSAL:
        end = tl.minimum(source, (block + 1) * ROWS)
    for start in range(0, end, KEYS):
        keys = start + tl.arange(0, KEYS)
        visible = visible_keys(rows, keys, target, source, PADDING + b * source, CAUSAL, PADDED)
        k = load_rows(K0 + b * k0_batch + h * k0_head, keys, d, k0_row, source, head_dim)
        v = load_rows(V + b * v_batch + h * v_head, keys, dv, v_row, source, value_dim)
        factors = 1.0
        if DROPOUT:
            factors = dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, False)
        top0, total0, out0 = _advance(q0, k, v, visible, scale, factors, top0, total0, out0, DROPOUT)
        if TWO:
            if TWO_KEYS:
                k = load_rows(K1 + b * k1_batch + h * k1_head, keys, d, k1_row, source, head_dim)
            if DROPOUT and not DROP_SUM:
                factors = dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, True)
            top1, total1, out1 = _advance(q1, k, v, visible, scale, factors, top1, total1, out1, DROPOUT)
    inside = rows < target
    out0, lse0 = _finish(top0, total0, out0)
    weight0 = tl.load(WEIGHTS + z * weight_head + rows * weight_row, mask=inside, other=0.0)
    out = weight0[:, None] * out0
    kept = z * target * value_dim  # OUT0, OUT1 are contiguous
    store_rows(OUT0 + kept, out0, rows, dv, value_dim, target, value_dim)
    tl.store(LSE + z * target + rows, lse0, mask=inside)
    if TWO:
        out1, lse1 = _finish(top1, total1, out1)
        weight1 = tl.load(WEIGHTS + (programs + z) * weight_head + rows * weight_row, mask=inside, other=0.0)
        out += weight1[:, None] * out1
        store_rows(OUT1 + kept, out1, rows, dv, value_dim, target, value_dim)
        tl.store(LSE + (programs + z) * target + rows, lse1, mask=inside)
    store_rows(OUT + b * out_batch + h * out_head, out, rows, dv, out_row, target, value_dim)


@triton.jit
def delta(
    GRAD, OUTS, DELTA, grad_batch, grad_head, grad_row, heads, programs, target, value_dim,
    DV: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """``DELTA`` ``[branches, batch * heads, target]``; a launch of its own, as all backward programs read it."""
    z, block = place(target, ROWS)
    branch = tl.program_id(1).to(tl.int64)
    b, h = z // heads, z % heads
    rows, dv = block * ROWS + tl.arange(0, ROWS), tl.arange(0, DV)
    grad = load_rows(GRAD + b * grad_batch + h * grad_head, rows, dv, grad_row, target, value_dim)
    line = branch * programs + z
    out = load_rows(OUTS + line * target * value_dim, rows, dv, value_dim, target, value_dim)
    total = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
    tl.store(DELTA + line * target + rows, total, mask=rows < target)


@triton.jit
def _grad_scores(q, k, g, visible, scale, lse, delta, weight, factors, DROPOUT: tl.constexpr):
    """``c P``, dropped out, and ``T = c P (G - delta)`` of a tile."""
    p = weight[:, None] * tl.exp2(masked_scores(q, k, visible, scale) - lse[:, None])
    if DROPOUT:
        return p * factors, p * (g * factors - delta[:, None])
    return p, p * (g - delta[:, None])


@triton.jit
def backward(
    Q0, Q1, K0, K1, V, WEIGHTS, PADDING, GRAD, LSE, DELTA, DQ0, DQ1, DK0, DK1, DV_OUT,
    q0_batch, q0_head, q0_row, q1_batch, q1_head, q1_row, k0_batch, k0_head, k0_row, k1_batch, k1_head, k1_row,
    v_batch, v_head, v_row, grad_batch, grad_head, grad_row, weight_head, weight_row,
    heads, programs, target, source, head_dim, value_dim, scale, plain_scale, seed, dropout,
    TWO: tl.constexpr, TWO_KEYS: tl.constexpr, CAUSAL: tl.constexpr, PADDED: tl.constexpr, DROPOUT: tl.constexpr,
    DROP_SUM: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    z, block = place(source, KEYS)
    b, h = z // heads, z % heads
    keys = block * KEYS + tl.arange(0, KEYS)
    d, dv = tl.arange(0, D), tl.arange(0, DV)
    k0 = load_rows(K0 + b * k0_batch + h * k0_head, keys, d, k0_row, source, head_dim)
    k1 = k0
    if TWO_KEYS:
        k1 = load_rows(K1 + b * k1_batch + h * k1_head, keys, d, k1_row, source, head_dim)
    v = load_rows(V + b * v_batch + h * v_head, keys, dv, v_row, source, value_dim)
    dk0, dv_sum = tl.zeros([KEYS, D], tl.float32), tl.zeros([KEYS, DV], tl.float32)
    dk1 = dk0
    begin = 0
    if CAUSAL:
        begin = block * KEYS // ROWS * ROWS
    for start in range(begin, target, ROWS):
        rows = start + tl.arange(0, ROWS)
        inside = rows < target
        visible = visible_keys(rows, keys, target, source, PADDING + b * source, CAUSAL, PADDED)
        grad = load_rows(GRAD + b * grad_batch + h * grad_head, rows, dv, grad_row, target, value_dim)
        g = product(grad, tl.trans(v))
        factors = 1.0
        if DROPOUT:
            factors = dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, False)
        q0 = load_rows(Q0 + b * q0_batch + h * q0_head, rows, d, q0_row, target, head_dim)
        lse = tl.load(LSE + z * target + rows, mask=inside, other=float("inf"))
        change = tl.load(DELTA + z * target + rows, mask=inside, other=0.0)
        weight = tl.load(WEIGHTS + z * weight_head + rows * weight_row, mask=inside, other=0.0)
        p, t = _grad_scores(q0, k0, g, visible, scale, lse, change, weight, factors, DROPOUT)
        t = t.to(q0.dtype)
        dk0 += product(tl.trans(t), q0)
        where = (z * target + rows)[:, None] * head_dim + d[None, :]
        mask = inside[:, None] & (d < head_dim)[None, :]
        tl.atomic_add(DQ0 + where, product(t, k0) * plain_scale, mask=mask, sem="relaxed")
        if TWO:
            if DROPOUT and not DROP_SUM:
                factors = dropout_factors(seed, z.to(tl.int32), rows, keys, dropout, True)
            q1 = load_rows(Q1 + b * q1_batch + h * q1_head, rows, d, q1_row, target, head_dim)
            lse = tl.load(LSE + (programs + z) * target + rows, mask=inside, other=float("inf"))
            change = tl.load(DELTA + (programs + z) * target + rows, mask=inside, other=0.0)
            weight = tl.load(WEIGHTS + (programs + z) * weight_head + rows * weight_row, mask=inside, other=0.0)
            p1, t = _grad_scores(q1, k1, g, visible, scale, lse, change, weight, factors, DROPOUT)
            p += p1
            t = t.to(q1.dtype)
            if TWO_KEYS:
                dk1 += product(tl.trans(t), q1)
            else:
                dk0 += product(tl.trans(t), q1)
            tl.atomic_add(DQ1 + where, product(t, k1) * plain_scale, mask=mask, sem="relaxed")
        dv_sum += product(tl.trans(p.to(grad.dtype)), grad)
    store_rows(DK0 + z * source * head_dim, dk0 * plain_scale, keys, d, head_dim, source, head_dim)
    if TWO_KEYS:
        store_rows(DK1 + z * source * head_dim, dk1 * plain_scale, keys, d, head_dim, source, head_dim)
    store_rows(DV_OUT + z * source * value_dim, dv_sum, keys, dv, value_dim, source, value_dim)
