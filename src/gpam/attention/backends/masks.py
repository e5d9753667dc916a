"""Which key is visible to which query, as small tensors."""

import torch
from torch import Tensor


def hidden_rows(key_padding_mask: Tensor, causal: bool) -> Tensor:
    """Bool ``[batch, target or 1]``: True for a query that sees no key at all."""
    if causal:
        return (~key_padding_mask).cumsum(-1) == 0
    return key_padding_mask.all(-1, keepdim=True)


def bias_of(attn_mask: Tensor | None) -> Tensor | None:
    """What an ``attn_mask`` of floats adds to the scores, 0 where it hides: a row of nothing but ``-inf`` would have no
    gradient. None of other masks."""
    if attn_mask is None or not attn_mask.is_floating_point():
        return None
    return attn_mask.masked_fill(hidden_by(attn_mask), 0)


def within_range(scores: Tensor, dtype: torch.dtype) -> Tensor:
    """``scores`` in ``dtype``: what lies below its range becomes its least finite number, where half precision would
    make ``-inf`` of it, and NaN of a row of nothing else."""
    least = max(torch.finfo(kind).min for kind in (dtype, scores.dtype))
    return scores.clamp(min=least).to(dtype)


def hides_only(attn_mask: Tensor) -> Tensor:
    """Bool, without dimensions: whether a mask of floats adds nothing to any score that it does not hide."""
    return (bias_of(attn_mask) == 0).all()


def adds_beside_hiding(attn_mask: Tensor) -> bool:
    """Whether a mask of floats adds to a score that it does not hide. On torch's meta device, which holds no numbers,
    it is taken to hide only."""
    return not attn_mask.is_meta and not hides_only(attn_mask)


def hidden_by(attn_mask: Tensor) -> Tensor:
    """Bool, True where an ``attn_mask`` hides a key: itself, or the places of ``-inf`` or of the least finite number,
    which others write for it."""
    return attn_mask <= torch.finfo(attn_mask.dtype).min if attn_mask.is_floating_point() else attn_mask
