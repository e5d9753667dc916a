"""Which key is visible to which query, as small tensors."""

import torch
from torch import Tensor


def hidden_rows(key_padding_mask: Tensor, causal: bool) -> Tensor:
    """Bool ``[batch, target or 1]``: True for a query that sees no key at all."""
    if causal:
        return (~key_padding_mask).cumsum(-1) == 0
    return key_padding_mask.all(-1, keepdim=True)


def visible_keys(key_padding_mask: Tensor | None, causal: bool, length: int, device: torch.device) -> Tensor | None:
    """Bool, broadcastable to ``[batch, heads, target, source]``: True where the key is visible; None: all are."""
    visible = None if key_padding_mask is None else ~key_padding_mask[:, None, None, :]
    if causal:
        past = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        visible = past if visible is None else visible & past
    return visible
