"""What a mechanism's output is in float64, by its weights; rows by themselves where the whole would not fit."""

import torch
from torch import Tensor

from gpam.attention.base import Mechanism

#: Above so many scores (batch x heads x target x source) only some rows are computed.
MOST_SCORES = 1 << 24
SAMPLED_ROWS = 48


def rows_to_check(batch: int, heads: int, target: int, source: int, seed: int) -> Tensor:
    """All rows, or the first, the last and some between."""
    if batch * heads * target * source <= MOST_SCORES:
        return torch.arange(target)
    between = torch.randperm(target - 2, generator=torch.Generator().manual_seed(seed))[: SAMPLED_ROWS - 2] + 1
    return torch.cat([torch.tensor([0, target - 1]), between]).sort().values


def can_check_rows(name: str) -> bool:
    """Whether rows of this mechanism can be computed one by one."""
    return name in _BRANCHES


def output_rows(
    name: str, m: Mechanism, q: Tensor, k: Tensor, v: Tensor, x: Tensor, rows: Tensor, padding, causal: bool
) -> Tensor:
    """The rows ``rows`` of ``m``'s output, ``[batch, heads, rows, head_dim]``; ``m`` and its inputs in float64."""
    if len(rows) == q.shape[2]:
        return m(q, k, v, query_input=x, key_padding_mask=padding, causal=causal, need_weights=True)[0]
    visible = torch.ones(len(rows), k.shape[2], dtype=torch.bool, device=q.device)
    if causal:
        visible = torch.arange(k.shape[2], device=q.device) <= rows[:, None].to(q.device)
    if padding is not None:
        visible = visible & ~padding[:, None, None, :]
    branches, values, after = _BRANCHES[name](m, q, k, v)
    weights = sum(
        weight * torch.softmax(
            (query[:, :, rows] @ key.transpose(2, 3) * query.shape[-1] ** -0.5).masked_fill(~visible, float("-inf")), -1
        )
        for weight, query, key in branches
    )  # fmt: skip
    return after(weights @ values)


def _same(out: Tensor) -> Tensor:
    return out


def _differential(m: Mechanism, q: Tensor, k: Tensor, v: Tensor):
    def after(out: Tensor) -> Tensor:
        out = (1 - m.lambda_init) * m.head_norm(out)
        return torch.stack(out.chunk(2, -1), 2).flatten(1, 2)

    branches = [(1.0, q[:, 0::2], k[:, 0::2]), (-m.share, q[:, 1::2], k[:, 1::2])]
    return branches, torch.cat([v[:, 0::2], v[:, 1::2]], -1), after


_BRANCHES = {
    "softmax": lambda m, q, k, v: ([(1.0, q, k)], v, _same),
    "dagpam": lambda m, q, k, v: (
        [(m.weight_pos, q, k), (-m.lambda_neg, m.negative_query(q), m.negative_key(k))],
        v,
        _same,
    ),
    "differential": _differential,
}
