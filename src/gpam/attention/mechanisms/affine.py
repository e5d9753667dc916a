"""What ``attnscale``, ``centered`` and ``shaped`` share: one softmax, the uniform matrix and perhaps the identity."""

import torch
from torch import Tensor

from gpam.attention import functional, parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Call, Masks
from gpam.attention.facts import bounds_of_sum
from gpam.errors import UsageError

Factor = float | Tensor


class AffineSoftmax(Mechanism):
    """``P = a I + b A + c D``: ``A`` the softmax, ``D`` uniform over the visible keys, ``I`` a target's own position.

    A subclass gives :attr:`factors`. Dropout falls once on ``P``, as in the code of attnscale and of shaped.
    """

    counts_keys = True

    @property
    def factors(self) -> tuple[Factor | None, Factor, Factor]:
        """``a, b, c``, numbers or one a head; ``a`` is ``None`` where there is no identity term."""
        raise NotImplementedError

    def row_sum(self) -> Factor:
        identity, softmax, uniform = self.factors
        return softmax + uniform + (0.0 if identity is None else identity)

    def weight_range(self) -> tuple[Tensor, Tensor]:
        return bounds_of_sum(*(factor for factor in self.factors if factor is not None))

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        identity, softmax, uniform = map(parts.per_head, self.factors)
        visible = masks.visible(q, k)
        attention = parts.masked_softmax(masks.scores(q, k), visible)
        weights = softmax * attention + uniform * parts.uniform(visible, attention)
        if identity is not None:
            check_own(q.shape[2], k.shape[2])
            weights = weights + identity * parts.own_key(visible, attention)
        return weights.to(q.dtype)

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if call.need_weights or self.active_dropout or call.masks.attn_mask is not None:
            # One dropout mask on P ties its parts together: they cannot be computed apart.
            return super()._attend(call)
        q, k, v = call.tensors
        padding, causal = call.masks.key_padding_mask, call.masks.causal
        identity, softmax, uniform = map(parts.per_head, self.factors)
        output = softmax * functional.softmax_attention(q, k, v, backend=self.backend, **vars(call.masks))
        output = output + uniform * _mean_of_visible(v, q.shape[2], padding, causal)
        if identity is not None:
            output = output + identity * own_value(v, q.shape[2], padding)
        return output.to(v.dtype), None


def _without_padding(v: Tensor, key_padding_mask: Tensor | None) -> Tensor:
    return v if key_padding_mask is None else v.masked_fill(key_padding_mask[:, None, :, None], 0)


def _mean_of_visible(v: Tensor, target: int, key_padding_mask: Tensor | None, causal: bool) -> Tensor:
    """``D V`` at the price of a running sum: ``[batch, heads, target or 1, head_dim]``."""
    seen = v.new_ones(1, 1, v.shape[2], 1) if key_padding_mask is None else (~key_padding_mask)[:, None, :, None]
    wide = torch.promote_types(v.dtype, torch.float32)
    total, count = _without_padding(v, key_padding_mask).to(wide), seen.to(wide)
    if causal:
        total, count = (part.cumsum(2)[:, :, v.shape[2] - target :] for part in (total, count))
    else:
        total, count = total.sum(2, keepdim=True), count.sum(2, keepdim=True)
    return (total / count.clamp(min=1)).to(v.dtype)


def check_own(target: int, source: int) -> None:
    """UsageError where there are more targets than sources, so that some have no position of their own."""
    if target > source:
        raise UsageError(f"got {target} targets for {source} sources, wanted a source for each, its own value")


def own_value(v: Tensor, target: int, key_padding_mask: Tensor | None) -> Tensor:
    """``I V``: the targets are the last positions of the source. Raises as :func:`check_own`."""
    check_own(target, v.shape[2])
    return _without_padding(v, key_padding_mask)[:, :, v.shape[2] - target :]
