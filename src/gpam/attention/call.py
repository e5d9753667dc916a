"""What one call of a mechanism is given, checked once and in one bundle."""

import dataclasses

import torch
from torch import Tensor

from gpam.attention import parts
from gpam.attention.backends.masks import adds_beside_hiding, bias_of, hidden_by, hides_only, within_range
from gpam.attention.backends.problem import checked_attn_mask, finite_at_padding
from gpam.errors import UsageError
from gpam.tracing import runs_as_called

_HIDES = -1e4
"""What people write for ``-inf``: -1e4, -1e9."""


@dataclasses.dataclass(frozen=True)
class Masks:
    """Which keys a query sees, and what is added to their scores.

    ``key_padding_mask`` bool ``[batch, source]``, true at padding. ``causal``: the targets are the last positions of
    the source and see nothing behind their own. ``attn_mask``, broadcastable to ``[batch, heads, target, source]``:
    boolean, true where a key is hidden; or of floats that are added to the scores, ``-inf`` hiding a key. ``vars`` of
    it are keyword arguments of ``gpam.attention.functional``.
    """

    key_padding_mask: Tensor | None
    causal: bool
    attn_mask: Tensor | None

    def visible(self, q: Tensor, k: Tensor) -> Tensor:
        """Bool, broadcastable to ``[batch, heads, target, source]``: true where a query sees a key."""
        visible = parts.visible_sources(q, k, self.key_padding_mask, self.causal)
        if self.attn_mask is None:
            return visible
        return visible & ~hidden_by(self.attn_mask)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """``S = Q K^T / sqrt(d_qk)``, and the bias."""
        scores, bias = parts.scaled_scores(q, k), bias_of(self.attn_mask)
        if bias is None:
            return scores
        wide = torch.promote_types(torch.promote_types(scores.dtype, bias.dtype), torch.float32)
        return within_range(scores.to(wide) + bias, scores.dtype)


@dataclasses.dataclass(frozen=True)
class Call:
    """The arguments of :meth:`gpam.attention.base.Mechanism.forward`, which says what they are."""

    q: Tensor
    k: Tensor
    v: Tensor
    masks: Masks
    query_input: Tensor | None
    need_weights: bool
    state: dict[str, Tensor] | None

    def finite_at_padding(self) -> "Call":
        """This call with zeros at padded keys and values, if they need them: for whoever multiplies weights by them."""
        k, v = (finite_at_padding(tensor, self.masks.key_padding_mask) for tensor in (self.k, self.v))
        return dataclasses.replace(self, k=k, v=v)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.q, self.k, self.v


def mask_for(
    mechanism: str, attn_mask: Tensor, q: Tensor, source: int, *, takes_bias: bool, counts_keys: bool
) -> Tensor:
    """``attn_mask`` as :class:`Masks` wants it; UsageError (of an exported graph, RuntimeError) where it does not fit.

    A mask of floats that only hides (0 and ``-inf``) is good for every mechanism; one that adds needs scores of which
    a bias leaves a meaning. Where the keys that a row sees are counted, what is added tells whether it hides: a softmax
    makes 0 of it.
    """
    attn_mask = checked_attn_mask(attn_mask, (*q.shape[:3], source))
    if counts_keys and attn_mask.is_floating_point():
        attn_mask = attn_mask.masked_fill(attn_mask <= _HIDES, float("-inf"))
    if takes_bias or attn_mask.dtype == torch.bool:
        return attn_mask
    refusal = (
        f"attention '{mechanism}' is no softmax of scores that a bias could be added to: got an attn_mask "
        "that adds, wanted one that only hides (booleans, or 0 and -inf)"
    )
    if not runs_as_called():
        torch._assert_async(hides_only(attn_mask), refusal)  # looked at when the graph runs
    elif adds_beside_hiding(attn_mask):
        raise UsageError(refusal)
    return hidden_by(attn_mask)
