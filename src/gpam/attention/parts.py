"""What the formulas of mechanisms are made of: who sees whom, scores and their softmax, heads."""

import torch
from torch import Tensor

from gpam.errors import UsageError
from gpam.tracing import dtype_of_products


def visible_sources(q: Tensor, k: Tensor, key_padding_mask: Tensor | None, causal: bool) -> Tensor:
    """Which source each target may see: boolean, ``[batch or 1, 1, target, source]``.

    Causal targets are the last positions of the source.
    """
    target, source = q.shape[-2], k.shape[-2]
    visible = torch.ones(1, 1, target, source, dtype=torch.bool, device=q.device)
    if causal:
        if target > source:
            raise UsageError(
                f"causal attention needs a source for each target, got {target} targets for {source} sources"
            )
        visible = visible.tril(source - target)
    if key_padding_mask is not None:
        visible = visible & ~key_padding_mask.bool()[:, None, None, :]
    return visible


def visible_count(visible: Tensor, like: Tensor) -> Tensor:
    """``n``, the number of keys that each row sees, at least 1 (a row that sees none has zero weights anyway)."""
    return visible.sum(-1, keepdim=True).clamp(min=1).to(like.dtype)


def uniform(visible: Tensor, like: Tensor) -> Tensor:
    """``D``: ``1 / n`` at every visible key."""
    return visible.to(like.dtype) / visible_count(visible, like)


def own_key(visible: Tensor, like: Tensor) -> Tensor:
    """``I``: one at a target's own position, if that is visible. The targets are the last positions of the source."""
    target, source = visible.shape[-2:]
    own = torch.ones(target, source, dtype=torch.bool, device=visible.device)
    own = own.triu(source - target).tril(source - target)
    return (own & visible).to(like.dtype)


def scaled_scores(q: Tensor, k: Tensor) -> Tensor:
    """``S = Q K^T / sqrt(d_qk)``."""
    if dtype_of_products(q) == torch.float16:  # whose largest number is 65,504
        return q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)
    return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5


def masked_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """``softmax(S + mask)`` over the last axis, with zeros in a row that sees nothing."""
    # A row that sees nothing is left as it is and zeroed afterwards: the softmax of nothing but -inf has no gradient.
    hidden = ~visible & visible.any(-1, keepdim=True)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1).masked_fill(~visible, 0)


def wide(value: float | Tensor) -> float | Tensor:
    """A number, or a tensor in float32 or wider: half precision would round a sum such as ``1 + lambda``."""
    return value.to(torch.promote_types(value.dtype, torch.float32)) if isinstance(value, Tensor) else value


def per_head(value: float | Tensor) -> float | Tensor:
    """A number, or a tensor of one or ``heads`` elements shaped to scale ``[batch, heads, target, source]``."""
    return value.reshape(-1, 1, 1) if isinstance(value, Tensor) else value


def merge_heads(x: Tensor) -> Tensor:
    """``[batch, heads, target, head_dim]`` to the concatenated heads ``[batch, target, heads * head_dim]``."""
    return x.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """The inverse of :func:`merge_heads`."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)
