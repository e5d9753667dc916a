"""NeuTRENO (Nguyen et al. 2023, arXiv 2312.00751): softmax attention with a pull towards the first layer's values.

::

    Y = A V + l (V_0 - V)          A = softmax(Q K^T / sqrt(d_qk) + mask), V_0 the values of the stack's first layer

=======  ==================================================================================
source   code
=======  ==================================================================================
``l``    ``neutreno_lambda``: 0.4 in the authors' WikiText-103 code, 0.6 in their ImageNet code
``V_0``  what the first layer left in ``stack`` in the same forward pass
=======  ==================================================================================

In the first layer the term is zero. It adds a position's own values, so it needs no cache: step by step the first layer
leaves the values of the new position. In cross attention a target has no own values: it keeps softmax. The weights
are those of the softmax (row sum 1); the term stands beside them, also at a position that sees no key. Gradients flow
into the first layer's values. Dropout falls on ``A``, as in the authors' code. No parameters.
"""

import dataclasses
import warnings

import torch
from torch import Tensor

from gpam.attention.call import Call
from gpam.attention.facts import Facts
from gpam.attention.mechanisms.affine import own_value
from gpam.attention.mechanisms.softmax import Softmax
from gpam.attention.options import option
from gpam.attention.registry import register
from gpam.attention.site import Site
from gpam.errors import UsageError


def _kept_as() -> str:
    """Their name in ``stack``. Values that were made without gradients, as a layer that is checkpointed alone makes
    them, are none for a layer that is run with them: it would take them for constants."""
    return f"NeuTRENO's first values, {'with' if torch.is_grad_enabled() else 'without'} gradients"


@dataclasses.dataclass(frozen=True)
class NeuTRENOOptions:
    neutreno_lambda: float = option(0.4, "l in A V + l (V_0 - V): in the source 0.4 on WikiText-103, 0.6 on ImageNet")


@register("neutreno")
class NeuTRENO(Softmax):
    Options = NeuTRENOOptions
    mixes_only = False
    needs_every_layer = True
    facts = Facts(
        formula="A V + l (V_0 - V), V_0 the first layer's values",
        source="Nguyen et al. 2023, arXiv 2312.00751",
        row_sum="1",
        weight_range="[0, 1]",
        negative=False,
        cross=False,
        limits="in cross attention a target has no own values: softmax stays there",
    )

    def __init__(self, site: Site, options: NeuTRENOOptions) -> None:
        super().__init__(site, options)
        if site.layers == 1:
            warnings.warn(
                "attention 'neutreno' in a stack of one layer is softmax: build each layer with Site(layer=..., "
                "layers=...) and give all of them one StackMemory",
                stacklevel=3,
            )

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        output, weights = super()._attend(call)
        own = own_value(call.v, call.q.shape[2], None)
        first, last = self.site.layer == 0, self.site.layer == self.site.layers - 1
        if not first:
            output = output + self.options.neutreno_lambda * (self._first_values(own) - own)
        if first or last:
            self.stack.tensors.clear()
        if first and not last:
            self.stack.tensors[_kept_as()] = own
        return output, weights

    def _first_values(self, own: Tensor) -> Tensor:
        first = self.stack.tensors.get(_kept_as())
        if first is None or first.shape != own.shape:
            got = "none" if first is None else f"shape {list(first.shape)}"
            raise UsageError(
                f"layer {self.site.layer} of attention 'neutreno' needs the first layer's values of shape "
                f"{list(own.shape)}, got {got}: the layers of a stack must share one StackMemory, run in order, all "
                "with gradients or all without, and where they are checkpointed be so as a whole"
            )
        return first.to(own.device)
