"""CoDA, compositional de-attention (Tay et al., NeurIPS 2019).

::

    P_ij = tanh(q_i . k_j / sqrt(d)) * 2 sigmoid(-||q_i - k_j||_1 / sqrt(d)),   masked entries zero
    Y = P V

A weight lies in ``(-1, 1)``; rows are not normalised. Of the source's two ways to let the gate reach 1 this is the
doubled sigmoid (the other centres the distances over the row, which a causal row cannot know); its ``alpha`` and
``beta`` are 1. No options, no parameters. The distances never exist as ``[.., source, head_dim]`` in the forward
pass, but torch's CUDA backward of ``cdist`` makes that tensor: it is taken head by head. Half precision is computed in
float32 there. Dropout falls on the weights (the source's place for it is not known).
"""

import torch
from torch import Tensor

from gpam.attention import parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Masks
from gpam.attention.facts import Facts, products
from gpam.attention.registry import register


@register("coda")
class CoDA(Mechanism):
    takes_bias = False
    facts = Facts(
        formula="P V, P = tanh(S) 2 sigmoid(-||q - k||_1 / sqrt(d))",
        source="Tay et al. 2019, Compositional De-Attention Networks, NeurIPS",
        row_sum="not fixed",
        weight_range="[-1, 1]",
        negative=True,
        flops=products(3),
        departures="dropout falls on the weights (the source's place for it is not known); alpha and beta are 1",
    )

    def weight_range(self) -> tuple[float, float]:
        return -1.0, 1.0

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        visible = masks.visible(q, k)
        gate = 2 * torch.sigmoid(-_distance(q, k) / self.site.head_dim**0.5)
        return (torch.tanh(parts.scaled_scores(q, k)) * gate).masked_fill(~visible, 0)


def _distance(q: Tensor, k: Tensor) -> Tensor:
    """``||q_i - k_j||_1``, ``[batch, heads, target, source]``."""
    wide = torch.promote_types(q.dtype, torch.float32)
    heads = [torch.cdist(q_h.to(wide), k_h.to(wide), p=1.0) for q_h, k_h in zip(q.unbind(1), k.unbind(1), strict=True)]
    return torch.stack(heads, dim=1).to(q.dtype)
