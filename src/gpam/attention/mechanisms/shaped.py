"""Shaped attention (Noci et al. 2023, arXiv 2306.17759).

::

    P = a_h I + b_h A - c_h D,   Y = P V
    A = softmax(Q K^T / sqrt(d_qk) + mask),  D = 1/n at each of the row's n visible keys, I the row's own position

=======================  ================================================================
source                   code
=======================  ================================================================
``a_h``, ``b_h``, ``c_h``  ``identity``, ``attention``, ``center``: learned, one a head, 1 at the start
=======================  ================================================================

A row sums to ``a + b - c`` (where its own position is no padding). The learned head-wise factors, their start and
dropout on ``P`` follow the code of He and Hofmann's Simplified Transformers (arXiv 2311.01906), which uses this
attention; the source's width-dependent temperature of the softmax is not used there nor here. In cross attention a
target has no own position: it keeps softmax.
"""

import torch
from torch import Tensor, nn

from gpam.attention import parts
from gpam.attention.facts import Facts
from gpam.attention.mechanisms.affine import AffineSoftmax
from gpam.attention.options import NoOptions
from gpam.attention.registry import register
from gpam.attention.site import Site


@register("shaped")
class Shaped(AffineSoftmax):
    facts = Facts(
        formula="(a I + b A - c D) V, D uniform",
        source="Noci et al. 2023, arXiv 2306.17759",
        row_sum="a + b - c: 1 at the start",
        weight_range="[-c, a + b]",
        negative=True,
        extra_parameters=lambda site, options: 3 * site.num_heads,
        cross=False,
        limits="in cross attention a target has no own position: softmax stays there",
        departures=(
            "factors, their start and dropout follow He and Hofmann's code; the source's width-dependent "
            "temperature is left out"
        ),
    )

    def __init__(self, site: Site, options: NoOptions) -> None:
        super().__init__(site, options)
        self.identity, self.attention, self.center = (nn.Parameter(torch.ones(site.num_heads)) for _ in range(3))

    @property
    def factors(self) -> tuple[Tensor, Tensor, Tensor]:
        identity, attention, center = map(parts.wide, (self.identity, self.attention, self.center))
        return identity, attention, -center
