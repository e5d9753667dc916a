"""GFSA, graph-filter-based self-attention (Choi et al. 2024, arXiv 2312.04234).

::

    P = w_0 I + A + w_K (A + (K - 1)(A^2 - A)),   Y = P V      A = softmax(Q K^T / sqrt(d_qk) + mask)

=======  ============================================================================
source   code
=======  ============================================================================
``K``    ``gfsa_order``: 3 in the authors' WikiText-103 run, 7 on Penn Treebank, 9 on WikiText-2
``w_0``  ``gfsa_identity``: 0 in their runs, not learned
``w_K``  ``high_order``: learned, one a head, 0 at the start
=======  ============================================================================

``w_1`` is 1 and not learned, as in their language-model code; so is the place of dropout: on ``A``, before it is
squared. The square costs one more product, as ``A^2 V = A (A V)``, and when decoding step by step the earlier rows of
``A V`` are kept. A row sums to ``w_0 + 1 + w_K``; at the start this is softmax. In cross attention ``A`` is not square
and a target has no own position: it keeps softmax.
"""

import dataclasses

import torch
from torch import Tensor, nn

from gpam.attention import parts
from gpam.attention.backends.problem import finite_at_padding
from gpam.attention.base import Mechanism
from gpam.attention.call import Call, Masks
from gpam.attention.facts import Facts, bounds_of_sum, products
from gpam.attention.mechanisms.affine import own_value
from gpam.attention.options import option
from gpam.attention.registry import register
from gpam.attention.site import Site
from gpam.errors import UsageError


@dataclasses.dataclass(frozen=True)
class GFSAOptions:
    gfsa_order: int = option(3, "K, the filter's order: in the source 3 on WikiText-103, 7 on Penn Treebank", minimum=2)
    gfsa_identity: float = option(0.0, "w_0, the fixed factor of the identity: 0 in the source's runs")


@register("gfsa")
class GFSA(Mechanism):
    Options = GFSAOptions
    facts = Facts(
        formula="(w_0 I + A + w_K (A + (K - 1)(A^2 - A))) V",
        source="Choi et al. 2024, arXiv 2312.04234",
        row_sum="w_0 + 1 + w_K: 1 at the start",
        weight_range="from the sum of the negative to the sum of the positive factors of I, A and A^2",
        negative=True,
        extra_parameters=lambda site, options: site.num_heads,
        flops=products(3),
        cross=False,
        limits="in cross attention A is not square: softmax stays there; decoding step by step gives no weights",
    )

    def __init__(self, site: Site, options: GFSAOptions) -> None:
        super().__init__(site, options)
        self.high_order = nn.Parameter(torch.zeros(site.num_heads))

    @property
    def factors(self) -> tuple[float, Tensor, Tensor]:
        """The factors of ``I``, ``A`` and ``A^2``."""
        order, high = self.options.gfsa_order, parts.wide(self.high_order)
        return self.options.gfsa_identity, 1 + (2 - order) * high, (order - 1) * high

    def row_sum(self) -> Tensor:
        return sum(self.factors)

    def weight_range(self) -> tuple[Tensor, Tensor]:
        return bounds_of_sum(*self.factors)

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        identity, first, second = map(parts.per_head, self.factors)
        _refuse_missing_rows(q, k)
        visible = masks.visible(q, k)
        attention = parts.masked_softmax(masks.scores(q, k), visible)
        every_row = finite_at_padding(attention, masks.key_padding_mask)
        weights = first * attention + second * (attention @ every_row)
        return (weights + identity * parts.own_key(visible, attention)).to(q.dtype)

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        q, k, v = call.finite_at_padding().tensors
        if call.need_weights and call.state is not None:
            raise UsageError(
                "attention 'gfsa' keeps no earlier rows of A when decoding step by step, so it cannot give weights "
                "then; ask for them with all targets at once"
            )
        identity, first, second = map(parts.per_head, self.factors)
        if call.state is None:
            _refuse_missing_rows(q, k)
        visible = call.masks.visible(q, k)
        attention = self.dropped(parts.masked_softmax(call.masks.scores(q, k), visible))
        gathered = attention @ v
        every_row = gathered
        if call.state is not None:
            if "gfsa_gathered" in call.state:
                every_row = torch.cat([call.state["gfsa_gathered"], gathered], dim=2)
            if every_row.shape[2] != k.shape[2]:
                raise UsageError(
                    f"attention 'gfsa' squares A: got a state with {every_row.shape[2]} rows for {k.shape[2]} sources; "
                    "begin a text with an empty state"
                )
            call.state["gfsa_gathered"] = every_row
        output = first * gathered + second * (attention @ finite_at_padding(every_row, call.masks.key_padding_mask))
        if self.options.gfsa_identity:
            own = parts.own_key(visible, attention).sum(-1, keepdim=True)  # 0 where that key is hidden
            output = output + identity * own * own_value(v, q.shape[2], None)
        return output.to(v.dtype), self._weights(q, k, call.masks) if call.need_weights else None


def _refuse_missing_rows(q: Tensor, k: Tensor) -> None:
    if q.shape[2] != k.shape[2]:
        raise UsageError(
            f"attention 'gfsa' squares A: got {q.shape[2]} targets for {k.shape[2]} sources and no state with the "
            "earlier rows, wanted as many, or the state of the steps before (in transformers: use_cache=False)"
        )
