"""NAP, normalised attention pooling (Richter and Wattenhofer 2020, arXiv 2005.09561).

::

    P = g_h (Q K^T - mean) / (std + 1e-3) + b_h     over the visible keys of a row, zero at the others
    Y = GELU(LayerNorm(P V))                        over the concatenated heads, before the output projection

=======  ==================================================================
source   code
=======  ==================================================================
``g``    ``gain``, one a head, 1 at the start
``b``    ``bias``, one a head, 0 at the start
=======  ==================================================================

The scores are not scaled (the normalisation undoes it), the deviation is the population's and 1e-3 is added to it: all
from the authors' Keras code. The LayerNorm has torch's epsilon 1e-5, as their PyTorch code (Keras: 1e-3), and the GELU
is the exact one. A row that sees one key has the weight ``b``. Dropout falls on the weights, as there.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpam.attention import parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Masks
from gpam.attention.facts import Facts
from gpam.attention.options import NoOptions
from gpam.attention.registry import register
from gpam.attention.site import Site
from gpam.tracing import without_autocast

_EPSILON = 1e-3


@register("nap")
class NAP(Mechanism):
    takes_bias = False
    facts = Facts(
        formula="GELU(LayerNorm(P V)), P = g (Q K^T - mean) / (std + 1e-3) + b over the row",
        source="Richter and Wattenhofer 2020, arXiv 2005.09561",
        row_sum="n b: 0 at the start",
        weight_range="unbounded: about sqrt(n) at the start",
        negative=True,
        extra_parameters=lambda site, options: 2 * site.num_heads + 2 * site.embed_dim,
        departures=(
            "no layer norm around the sub-layer or in the feed-forward layer but the recipe's own, where the authors "
            "put one; n and the statistics are of the keys that a row sees, not of the padded length; the LayerNorm's "
            "epsilon is torch's"
        ),
    )

    def __init__(self, site: Site, options: NoOptions) -> None:
        super().__init__(site, options)
        self.gain = nn.Parameter(torch.ones(site.num_heads))
        self.bias = nn.Parameter(torch.zeros(site.num_heads))
        self.layer_norm = nn.LayerNorm(site.embed_dim)

    def row_sum(self) -> float | None:
        return None if self.bias.any() else 0.0

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        visible = masks.visible(q, k)
        with without_autocast(q.device.type):  # unscaled scores and their squares leave float16's range
            scores = (parts.wide(q) @ parts.wide(k).transpose(-2, -1)).masked_fill(~visible, 0)
        n = parts.visible_count(visible, scores)
        centred = (scores - scores.sum(-1, keepdim=True) / n).masked_fill(~visible, 0)
        variance = centred.square().sum(-1, keepdim=True) / n
        # The root has no derivative at 0, the variance of a row that sees one key.
        deviation = torch.where(variance > 0, variance, 1).sqrt() * (variance > 0)
        gain, bias = parts.per_head(self.gain), parts.per_head(self.bias)
        return (gain * centred / (deviation + _EPSILON) + bias).masked_fill(~visible, 0).to(q.dtype)

    def after_heads(self, output: Tensor) -> Tensor:
        return F.gelu(self.layer_norm(output))
