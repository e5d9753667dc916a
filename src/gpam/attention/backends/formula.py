"""Backend "reference": the formula in plain autograd operations, every matrix materialised. The slow, obvious one."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gpam.attention.backends.problem import Problem


def reference(problem: Problem) -> Tensor:
    """``O = sum_j c_j softmax(Q_j K_j^T / sqrt(d) + mask) V`` -> ``[batch, heads, target, d_v]``."""
    values = problem.values
    visible = problem.visible()
    drop_branches = problem.dropout if problem.dropout_on == "branches" else 0.0
    combined: Tensor | float = 0.0
    for branch, query in enumerate(problem.queries):
        key = problem.key(branch).transpose(-1, -2)
        # float16's largest number is 65,504
        scores = query * problem.scale @ key if query.dtype == torch.float16 else query @ key * problem.scale
        scores = scores.to(problem.weights.dtype)
        if problem.bias is not None:
            scores = scores + problem.bias
        probabilities = F.dropout(_softmax(scores, visible), drop_branches)
        combined = combined + problem.weights[branch] * probabilities
    if problem.dropout_on == "combined":
        combined = F.dropout(combined, problem.dropout)
    return combined.to(values.dtype) @ values


def _softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    if visible is None:
        return torch.softmax(scores, -1)
    sees_any = visible.any(-1, keepdim=True)
    # A row that sees nothing is left unmasked and zeroed afterwards: a softmax over nothing but -inf is NaN in the
    # forward pass and, even where it is overwritten, in the backward pass.
    scores = scores.masked_fill(sees_any & ~visible, float("-inf"))
    return torch.softmax(scores, -1).masked_fill(~sees_any, 0.0)
