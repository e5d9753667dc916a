"""Which key is visible to which query, as small tensors."""

from torch import Tensor


def hidden_rows(key_padding_mask: Tensor, causal: bool) -> Tensor:
    """Bool ``[batch, target or 1]``: True for a query that sees no key at all."""
    if causal:
        return (~key_padding_mask).cumsum(-1) == 0
    return key_padding_mask.all(-1, keepdim=True)
