"""AttnScale (Wang et al. 2022, arXiv 2203.05962): the high frequencies of one softmax, scaled.

::

    P = D + (1 + w_h)(A - D) = (1 + w_h) A - w_h D        Y = P V
    A = softmax(Q K^T / sqrt(d_qk) + mask),  D = 1/n at each of the row's n visible keys

=======  ==================================================
source   code
=======  ==================================================
``w_h``  ``scale``, learned, one a head, 0 at the start
=======  ==================================================

A row sums to 1 and a weight lies in ``[-w, 1 + w]``: an affine combination from a single softmax, the cheapest
control for daGPAM. At the start it is softmax. Parameters, their start and dropout on ``P`` as in the authors' code.
"""

import torch
from torch import Tensor, nn

from gpam.attention import parts
from gpam.attention.facts import Facts
from gpam.attention.mechanisms.affine import AffineSoftmax
from gpam.attention.options import NoOptions
from gpam.attention.registry import register
from gpam.attention.site import Site


@register("attnscale")
class AttnScale(AffineSoftmax):
    facts = Facts(
        formula="(D + (1 + w)(A - D)) V, D uniform",
        source="Wang et al. 2022, arXiv 2203.05962",
        row_sum="1",
        weight_range="[-w, 1 + w]",
        negative=True,
        extra_parameters=lambda site, options: site.num_heads,
        departures="D is over the keys that a row sees: the source, an image model, has no mask",
    )

    def __init__(self, site: Site, options: NoOptions) -> None:
        super().__init__(site, options)
        self.scale = nn.Parameter(torch.zeros(site.num_heads))

    @property
    def factors(self) -> tuple[None, Tensor, Tensor]:
        scale = parts.wide(self.scale)
        return None, 1 + scale, -scale
