"""Cog attention (Lv et al. 2024, arXiv 2411.07176).

::

    P = sign(S) softmax(|S| + mask),    Y = P V,    S = Q K^T / sqrt(d_qk)

The absolute values of a row sum to 1; a score of 0 has the weight 0. First and last layer of each stack keep softmax,
as in the authors' code, so a stack needs three layers: a shorter one is refused, as it would be softmax throughout.
No parameters. The authors' code has no dropout; here it falls on the weights.
"""

import dataclasses

from torch import Tensor

from gpam.attention import parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Masks
from gpam.attention.facts import Facts
from gpam.attention.options import option
from gpam.attention.registry import register
from gpam.attention.site import Site
from gpam.errors import UsageError


@dataclasses.dataclass(frozen=True)
class CogOptions:
    cog_softmax_layers: str = option(
        "first_and_last",
        "which layers of a stack keep softmax: the first and the last as in the source, or none",
        choices=("first_and_last", "none"),
    )


@register("cog")
class Cog(Mechanism):
    Options = CogOptions
    takes_bias = False
    facts = Facts(
        formula="sign(S) softmax(|S|) V, first and last layer softmax",
        source="Lv et al. 2024, arXiv 2411.07176",
        row_sum="not fixed: in [-1, 1]",
        weight_range="[-1, 1]",
        negative=True,
        departures="dropout falls on the weights: the authors' code has none",
    )

    @classmethod
    def used_at(cls, site: Site, options: CogOptions) -> bool:
        if options.cog_softmax_layers == "none":
            return True
        if site.layers < 3:
            raise UsageError(
                f"attention 'cog' keeps softmax in the first and the last layer: got a stack of {site.layers}, "
                "wanted 3 layers or more, or cog_softmax_layers=none"
            )
        return 0 < site.layer < site.layers - 1

    def weight_range(self) -> tuple[float, float]:
        return -1.0, 1.0

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        visible = masks.visible(q, k)
        scores = parts.scaled_scores(q, k)
        return scores.sign() * parts.masked_softmax(scores.abs(), visible)
