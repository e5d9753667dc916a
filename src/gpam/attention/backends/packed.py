"""Backend "packed": the branches' queries as rows of one product with the keys they share, for a step of decoding.

    S = [Q_1; Q_2] K^T / sqrt(d),   P = sum_j c_j softmax(S_j),   O = P V

With one query a sequence, reading the keys and values is what a step costs: here both are read once, as by softmax.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gpam.attention.backends.problem import Problem
from gpam.attention.parts import masked_softmax


def packed(problem: Problem) -> Tensor:
    """``O`` ``[batch, heads, target, d_v]``, in plain autograd operations."""
    values, visible, groups = problem.values, problem.visible(), []
    members = problem.branches // len(problem.keys)
    for first, key in zip(range(0, problem.branches, members), problem.keys, strict=True):
        rows = torch.cat(problem.queries[first : first + members], 2) * problem.scale
        scores = (rows @ key.transpose(2, 3)).unflatten(2, (members, problem.target))
        groups.append(torch.softmax(scores, -1) if visible is None else masked_softmax(scores, visible.unsqueeze(-3)))
    each = torch.cat(groups, 2)  # [batch, heads, branches, target, source]
    if problem.dropout and problem.dropout_on == "branches":
        each = F.dropout(each, problem.dropout)
    combined = (each * problem.weights.movedim(0, 2)).sum(2).to(values.dtype)
    if problem.dropout and problem.dropout_on == "combined":
        combined = F.dropout(combined, problem.dropout)
    return combined @ values
