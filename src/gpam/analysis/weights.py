"""What attention weights look like. ``weights`` are ``[..., target, source]``, of any sign; masked entries are zero."""

import torch
from torch import Tensor


def negative_mass(weights: Tensor) -> Tensor:
    """``sum max(-P_ij, 0) / sum |P_ij|`` over rows and columns: ``[...]``, in ``[0, 1]``; 0 for the zero matrix."""
    weights = weights.detach().to(torch.float64)
    total = weights.abs().sum((-2, -1))
    return torch.where(total == 0, 0.0, (-weights).clamp(min=0).sum((-2, -1)) / total)


def shares(weights: Tensor) -> Tensor:
    """``|P_ij| / sum_j |P_ij|``: the part that each source has in a row, whatever its sign; zero rows stay zero."""
    size = weights.detach().to(torch.float64).abs()
    total = size.sum(-1, keepdim=True)
    return torch.where(total == 0, 0.0, size / total)


def entropy(weights: Tensor) -> Tensor:
    """``-sum_j a_j ln a_j`` of :func:`shares`, in nats, a row: ``[..., target]``; ``ln n`` for ``n`` equal weights."""
    part = shares(weights)
    return -torch.xlogy(part, part).sum(-1)


def attention_to_first(weights: Tensor) -> Tensor:
    """The first source's :func:`shares`, a row: ``[..., target]``."""
    return shares(weights)[..., 0]


def sharpness(weights: Tensor) -> Tensor:
    """The largest of :func:`shares`, a row: ``[..., target]``; ``1 / n`` for ``n`` equal weights, 1 for one alone."""
    return shares(weights).amax(-1)
