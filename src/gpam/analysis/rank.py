"""How alike tokens are: cosines and ranks of ``[..., tokens, width]``, each to ``[...]``, computed in float64."""

import torch
from torch import Tensor

from gpam.errors import UsageError


def singular_values(x: Tensor) -> Tensor:
    """Singular values, the largest first: ``[..., min(tokens, width)]``."""
    return torch.linalg.svdvals(x.detach().to(torch.float64))


def stable_rank(x: Tensor) -> Tensor:
    """``||X||_F^2 / ||X||_2^2 = sum s_i^2 / s_1^2``: 1 where all tokens are multiples of one, at most the rank; 0 for
    the zero matrix."""
    values = singular_values(x)
    return _over(values[..., :1], values).square().sum(-1)


def effective_rank(x: Tensor) -> Tensor:
    """``exp(-sum p_i ln p_i)``, ``p_i = s_i / sum s`` (Roy and Vetterli 2007): the number of singular values that
    count; ``k`` where ``k`` are equal and the others zero; 0 for the zero matrix."""
    values = singular_values(x)
    total = values.sum(-1, keepdim=True)
    shares = _over(total, values)
    return torch.where(total.squeeze(-1) > 0, torch.exp(-torch.xlogy(shares, shares).sum(-1)), 0.0)


def mean_cosine_similarity(x: Tensor) -> Tensor:
    """Mean over all pairs of two tokens of ``x_i . x_j / (||x_i|| ||x_j||)``: 1 where all point the same way, 0 where
    they are orthogonal. A zero token has a cosine of 0 with every other.

    Raises:
        UsageError: fewer than two tokens make no pair.
    """
    tokens = x.shape[-2]
    if tokens < 2:
        raise UsageError(f"got {tokens} token in [..., tokens, width] {list(x.shape)}, wanted at least two to compare")
    x = x.detach().to(torch.float64)
    x = _over(x.abs().amax(-1, keepdim=True), x)
    directions = _over(torch.linalg.vector_norm(x, dim=-1, keepdim=True), x)
    # sum over i != j of d_i . d_j = ||sum d_i||^2 - sum ||d_i||^2
    pairs = directions.sum(-2).square().sum(-1) - directions.square().sum((-2, -1))
    return pairs / (tokens * (tokens - 1))


def _over(size: Tensor, x: Tensor) -> Tensor:
    """``x / size``, and 0 where that is 0: squares of ``x`` itself might be 0 or infinite."""
    return torch.where(size == 0, 0.0, x / size)
