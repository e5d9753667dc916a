"""Backend "packed": the branches' queries as rows of one product with the keys they share, for a step of decoding.

    S = [Q_1; Q_2] K^T / sqrt(d),   P = sum_j c_j softmax(S_j),   O = P V

With one query a sequence, reading the keys and values is what a step costs: here both are read once, as by softmax.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gpam.attention.backends.masks import hidden_rows
from gpam.attention.backends.problem import Problem


def packed(problem: Problem) -> Tensor:
    """``O`` ``[batch, heads, target, d_v]``, in plain autograd operations."""
    values = problem.values
    members = problem.branches // len(problem.keys)
    groups = [
        _probabilities(problem, problem.queries[first : first + members], key)
        for first, key in zip(range(0, problem.branches, members), problem.keys, strict=True)
    ]
    each = torch.stack(groups) if len(groups) > 1 else groups[0].unsqueeze(0)
    # [branches, batch, heads, target, source]
    each = each.unflatten(3, (members, problem.target)).permute(0, 3, 1, 2, 4, 5).flatten(0, 1)
    if problem.dropout and problem.dropout_on == "branches":
        each = F.dropout(each, problem.dropout)
    if problem.plain:
        combined = each[0]
    else:
        first, *others = problem.weights.unbind()
        combined = each[0] * first
        for probabilities, weight in zip(each[1:], others, strict=True):
            combined = torch.addcmul(combined, probabilities, weight)
        combined = combined.to(values.dtype)
    if problem.dropout and problem.dropout_on == "combined":
        combined = F.dropout(combined, problem.dropout)
    return combined @ values


def _probabilities(problem: Problem, queries: tuple[Tensor, ...], key: Tensor) -> Tensor:
    """``[batch, heads, branches * target, source]`` of the branches that share ``key``."""
    rows = queries[0] if len(queries) == 1 else torch.cat(queries, 2)
    scores = (rows * problem.scale) @ key.transpose(2, 3)
    padding, target = problem.key_padding_mask, problem.target
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None, :], float("-inf"))
    if problem.causal:
        future = torch.ones(target, problem.source, dtype=torch.bool, device=rows.device).triu_(1)
        scores = scores.masked_fill(future.repeat(len(queries), 1), float("-inf"))
    if padding is None:
        return torch.softmax(scores, -1)
    hidden = hidden_rows(padding, problem.causal)[:, None, :, None]
    hidden = hidden.expand(-1, -1, target, -1).repeat(1, 1, len(queries), 1)
    # A softmax over nothing but -inf is NaN in the backward pass too, so such rows are unmasked, then zeroed.
    return torch.softmax(scores.masked_fill(hidden, 0.0), -1).masked_fill(hidden, 0.0)
