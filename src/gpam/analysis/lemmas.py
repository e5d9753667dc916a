"""The paper's lemmas as functions. Marks: [P] the paper itself, [2] second hand, [D] derived here.

One head: ``Q = X W_Q + 1 b_Q^T``, ``K = X W_K`` (a bias of the keys moves a row's scores together and drops out),
``X`` ``[..., tokens, width]``, ``W`` ``[..., width, head_dim]``. ``R = res(X)``, ``X = R + 1 x^T``.

**Lemmas 1 and 4, derived.** ``S = E + 1 r^T`` but for what softmax does not see, with ``r`` the scores of the row
``x`` and

- ``E = R W_Q W_K^T R^T / sqrt(d)`` in the positive branch,
- ``E = (phi(Q) - phi(1 q^T)) W_Q^- W_K^T R^T / sqrt(d)``, ``q = W_Q^T x + b_Q``, in the negative one, ``phi`` its ReLU.

Let ``D_i = max_jk |E_ij - E_ik|``. Then ``P_ij`` lies within a factor ``exp(+-D_i)`` of ``softmax(r)_j``, so

    |P X - 1 softmax(r)^T X|_ij  =  |(P - 1 softmax(r)^T) R|_ij  <=  (exp(D_i) - 1) (softmax(r)^T |R|)_j

and ``exp(D) - 1 <= 2 D`` while ``D <= 1.2564``. Norms of both factors give, for ``P = sum_k c_k P_k``,

    ||res(P X W_V)|| <= 2 sqrt( (sum_k |c_k| max_i D_ki) (sum_k |c_k| sum_i D_ki) ) ||R|| ||W_V||

With ``gamma = sum_i D_i / (2 sqrt2 ||E||_1)`` and ``||E||_1 <= ||W_QK||_1 ||R||^2 / sqrt(d)`` this is at most the
lemmas' right-hand side,

    4 sqrt2 sum_k |c_k| gamma_k ||W_QK,k||_1 ||W_V|| ||R||^3 / sqrt(d)

where ``||W_QK||_1`` is that of ``W_Q W_K^T``, and in the negative branch, as ReLU makes the map no matrix,
``||W_Q||_1 ||W_Q^- W_K^T||_1`` (ReLU is 1-Lipschitz). The paper's own ``gamma`` is not known; with this one both lemmas
have a proof [D].

A causal mask breaks the proof: ``1 softmax(r)^T`` is then no matrix of equal rows.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpam.analysis.norms import column_norm, composite_norm
from gpam.analysis.residual import residual_norm

SMALL_SCORES = 1.2564312086261697
"""The positive root of ``exp(D) - 1 = 2 D``: up to it the lemmas' proof holds."""


def _in_float64(formula: Callable[..., Any]) -> Callable[..., Any]:
    """A bound is compared with what it bounds, so neither may be rounded as what is given was."""

    @functools.wraps(formula)
    def exact(*given: Any, **named: Any) -> Any:
        def widened(one: Any) -> Any:
            return one.to(torch.float64) if isinstance(one, Tensor) else one

        return formula(*map(widened, given), **{name: widened(one) for name, one in named.items()})

    return exact


class Branch(NamedTuple):
    """One softmax of a head: its factor ``c`` in ``P``, its score deviations ``E`` ``[..., tokens, tokens]``, and
    ``||W_QK||_1`` ``[...]``."""

    factor: float | Tensor
    deviations: Tensor
    query_key_norm: Tensor


class Bound(NamedTuple):
    """Of lemma 1 or 4: its ``right_hand_side``, the tighter bound ``before`` norms are multiplied out, the residual
    ``measured``, and whether the proof's ``assumption`` on the scores holds; ``[...]`` each."""

    right_hand_side: Tensor
    before: Tensor
    measured: Tensor
    assumption: Tensor

    @property
    def holds(self) -> Tensor:
        return self.measured <= self.right_hand_side


@_in_float64
def positive_branch(factor: float | Tensor, rest: Tensor, w_q: Tensor, w_k: Tensor) -> Branch:
    """The branch ``softmax(Q K^T / sqrt(d))``; ``rest`` is ``res(X)``."""
    return Branch(factor, (rest @ w_q) @ (rest @ w_k).mT / w_q.shape[-1] ** 0.5, column_norm(w_q @ w_k.mT))


@_in_float64
def negative_branch(
    factor: float | Tensor,
    rest: Tensor,
    row: Tensor,
    w_q: Tensor,
    b_q: Tensor,
    w_neg: Tensor,
    w_k: Tensor,
    *,
    relu: bool = True,
) -> Branch:
    """The branch ``softmax((ReLU(Q) W_Q^-) K^T / sqrt(d))``, without ReLU where the mechanism has none; ``rest`` is
    ``res(X) = X - 1 row^T``, ``row`` ``[..., width]``."""
    mapped = w_neg @ w_k.mT
    if relu:
        middle = (row.unsqueeze(-2) @ w_q) + b_q.unsqueeze(-2)
        change = torch.relu(rest @ w_q + middle) - torch.relu(middle)
        norm = column_norm(w_q) * column_norm(mapped)
    else:
        change, norm = rest @ w_q, column_norm(w_q @ mapped)
    return Branch(factor, change @ mapped @ rest.mT / w_q.shape[-1] ** 0.5, norm)


@_in_float64
def residual_bound(rest: Tensor, output: Tensor, w_v: Tensor, branches: list[Branch]) -> Bound:
    """Lemma 1 (one branch) or 4 (two): the bound of ``||res(P X W_V)||_{1,inf}`` beside its value.

    ``rest = res(X)`` ``[..., tokens, width]``, ``output = P X W_V`` ``[..., tokens, head_dim]``, all in float64.
    """
    size, value_norm, root = composite_norm(rest), composite_norm(w_v), output.shape[-1] ** 0.5
    right = most = total = torch.zeros(())
    assumption = torch.ones((), dtype=torch.bool)
    for factor, deviations, query_key_norm in branches:
        spread = deviations.amax(-1) - deviations.amin(-1)
        most = most + abs(factor) * spread.amax(-1)
        total = total + abs(factor) * spread.sum(-1)
        right = right + abs(factor) * gamma(deviations) * query_key_norm / root
        assumption = assumption & (spread.amax(-1) <= SMALL_SCORES)
    before = 2 * (most * total).sqrt() * size * value_norm
    return Bound(4 * 2**0.5 * right * value_norm * size**3, before, residual_norm(output), assumption)


@_in_float64
def gamma(deviations: Tensor) -> Tensor:
    """``sum_i D_i / (2 sqrt2 ||E||_1)``, ``D_i = max_jk |E_ij - E_ik|`` [D]; 0 where ``E`` is zero."""
    spread = (deviations.amax(-1) - deviations.amin(-1)).sum(-1)
    return (spread / (2 * 2**0.5 * column_norm(deviations))).nan_to_num(0.0)


@_in_float64
def softmax_jacobian(p: Tensor) -> Tensor:
    """Lemma 2: ``J_ij = dp_i / ds_j = p_i (delta_ij - p_j)`` of ``p = softmax(s)`` ``[..., n]``: ``[..., n, n]``. It
    vanishes as ``p`` becomes one-hot."""
    return torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)


@_in_float64
def jacobian_total(p: Tensor) -> Tensor:
    """Lemma 3's total norm, ``sum_ij |J_ij| = 2 sum_i p_i (1 - p_i)``: ``[..., n]`` to ``[...]``."""
    return 2 * (p * (1 - p)).sum(-1)


def jacobian_total_maximum(n: float | Tensor) -> float | Tensor:
    """``2 (1 - 1/n)``: the most that :func:`jacobian_total` can be, at the uniform row alone."""
    return 2 * (1 - 1 / n)


def opposed_scores_gradient(p_pos: Tensor, p_neg: Tensor, lambda_pos: float, lambda_neg: float) -> Tensor:
    """Lemma 5: ``dP/dS+ = (1 + lambda+) J(P+) + lambda- J(P-)`` where ``S- = -S+``: ``[..., n]`` to ``[..., n, n]``."""
    return (1 + lambda_pos) * softmax_jacobian(p_pos) + lambda_neg * softmax_jacobian(p_neg)


def opposition(s_pos: Tensor, s_neg: Tensor, visible: Tensor) -> Tensor:
    """The cosine of scores ``[..., target, source]`` where ``visible``, ``[...]``: -1 where lemma 5's ``S- = -S+``
    holds, 0 where unrelated or zero; each row less its mean, which softmax does not see."""
    count = visible.sum(-1, keepdim=True).clamp(min=1)

    def centred(scores: Tensor) -> Tensor:
        scores = scores.to(torch.float64).masked_fill(~visible, 0)
        return (scores - scores.sum(-1, keepdim=True) / count).masked_fill(~visible, 0)

    s_pos, s_neg = centred(s_pos), centred(s_neg)
    lengths = torch.linalg.matrix_norm(s_pos) * torch.linalg.matrix_norm(s_neg)
    return torch.where(lengths == 0, 0.0, (s_pos * s_neg).sum((-2, -1)) / lengths)
