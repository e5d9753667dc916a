"""Backend "reference": the formula in plain autograd operations, every matrix materialised. The slow, obvious one."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gpam.attention.backends.masks import bias_of
from gpam.attention.backends.problem import Problem
from gpam.attention.parts import masked_softmax, scaled_scores


def reference(problem: Problem) -> Tensor:
    """``O = sum_j c_j softmax(Q_j K_j^T / sqrt(d) + mask) V`` -> ``[batch, heads, target, d_v]``."""
    values = problem.values
    visible, bias = problem.visible(), bias_of(problem.attn_mask)
    drop_branches = problem.dropout if problem.dropout_on == "branches" else 0.0
    combined: Tensor | float = 0.0
    for branch, query in enumerate(problem.queries):
        scores = scaled_scores(query, problem.key(branch)).to(problem.weights.dtype)
        if bias is not None:
            scores = scores + bias
        probabilities = torch.softmax(scores, -1) if visible is None else masked_softmax(scores, visible)
        combined = combined + problem.weights[branch] * F.dropout(probabilities, drop_branches)
    if problem.dropout_on == "combined":
        combined = F.dropout(combined, problem.dropout)
    return combined.to(values.dtype) @ values
