"""Softmax with a learned factor where daGPAM has its row sum: what scale does where all weights of a row have one sign.

::

    P = s A,   s = 1 + lambda+ - lambda-        Y = P V
    A = softmax(Q K^T / sqrt(d_qk) + mask)

===========  ==================================================
symbol       code
===========  ==================================================
``lambda+``  ``lambda_pos``, learned, 0.5 at the start
``lambda-``  ``lambda_neg``, learned, 0.5 at the start
===========  ==================================================

A row sums to ``s``, 1 at the start. The control for daGPAM with trainable lambdas (arXiv 2410.15578), whose rows sum
to the same expression: our own, from no source. Why it has two numbers is in its facts.
"""

import dataclasses

import torch
from torch import Tensor, nn

from gpam.attention import parts
from gpam.attention.call import Masks
from gpam.attention.facts import Facts, bounds_of_sum
from gpam.attention.mechanisms.softmax import Softmax
from gpam.attention.options import option
from gpam.attention.registry import register
from gpam.attention.site import Site

_START = 0.5


@dataclasses.dataclass(frozen=True)
class SoftmaxScaledOptions:
    scaled_by: str = option("module", "one learned factor a module, or one a head", choices=("module", "head"))


@register("softmax_scaled")
class SoftmaxScaled(Softmax):
    Options = SoftmaxScaledOptions
    facts = Facts(
        formula="s A V, s = 1 + lambda+ - lambda-, both learned",
        source="our control for daGPAM's row sum",
        row_sum="1 + lambda+ - lambda-: 1 at the start",
        weight_range="between 0 and s: one sign for all of a head",
        negative=True,
        extra_parameters=lambda site, options: 2 * (site.num_heads if options.scaled_by == "head" else 1),
        note="two numbers stand for one factor, so that an optimiser moves it as it moves daGPAM's row sum: a step of "
        "Adam changes s by up to twice the learning rate, and weight decay draws it to 1; a single number would move "
        "half as fast, and decay to 0",
    )

    def __init__(self, site: Site, options: SoftmaxScaledOptions) -> None:
        super().__init__(site, options)
        shape = (site.num_heads,) if options.scaled_by == "head" else ()
        self.lambda_pos = nn.Parameter(torch.full(shape, _START))
        self.lambda_neg = nn.Parameter(torch.full(shape, _START))

    def row_sum(self) -> Tensor:
        return 1 + parts.wide(self.lambda_pos) - parts.wide(self.lambda_neg)

    def weight_range(self) -> tuple[Tensor, Tensor]:
        return bounds_of_sum(self.row_sum())

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        return (parts.per_head(self.row_sum()) * super()._weights(q, k, masks)).to(q.dtype)
