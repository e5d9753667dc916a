"""ContraNorm (Guo et al. 2023, arXiv 2303.06562): softmax attention, and positions pushed apart behind each block.

::

    x <- x - s softmax(x' x'^T / t + mask) x,   then LayerNorm         x' = x / ||x|| row by row

``x`` is the sum of the self-attention sub-layer's output and its residual, over the full width. Where it stands:

- post-LN: between that sum and the sub-layer's own LayerNorm, the authors' position 7, their default for BERT;
- pre-LN: before the LayerNorm that reads that sum next, inside the following sub-layer's branch, so that the residual
  stream itself stays as it was. This is their ImageNet code's second norm; that code does the same at every LayerNorm.

=======  ===========================================================================================
source   code
=======  ===========================================================================================
``s``    ``contranorm_scale``: chosen among 0.005, 0.01, 0.05, 0.1, 0.2 for each GLUE task; 0.1 is our choice
``t``    ``contranorm_temperature``: 1 in the authors' code
=======  ===========================================================================================

The authors' code compares directions, ``x'``; their formula has ``x`` itself: ``contranorm_similarity`` chooses. Their
BERT code has ``(1 + s) x`` in place of ``x``: as a LayerNorm follows, that is this with ``s / (1 + s)`` for ``s``. A
position compares itself with those that the block's attention lets it see: no padding, and in a decoder the past only,
for which the earlier sums are kept when decoding step by step. It follows self attention only; cross attention is plain
softmax. The weights are those of the softmax. No parameters. Dropout on the attention weights only.
"""

import dataclasses
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from gpam.attention import functional
from gpam.attention.call import Call
from gpam.attention.facts import Facts, products
from gpam.attention.mechanisms.softmax import Softmax
from gpam.attention.options import option
from gpam.attention.registry import register
from gpam.attention.site import Site


@dataclasses.dataclass(frozen=True)
class ContraNormOptions:
    contranorm_scale: float = option(
        0.1, "s in x - s softmax(x' x'^T / t) x: the source takes the best of 0.005 to 0.2 for each task", minimum=0
    )
    contranorm_temperature: float = option(1.0, "t, the temperature of the similarities: 1 in the source", minimum=1e-3)
    contranorm_similarity: str = option(
        "cosine",
        "x' x'^T of directions as in the source's code, or of x itself as in its formula",
        choices=("cosine", "dot"),
    )


@register("contranorm")
class ContraNorm(Softmax):
    Options = ContraNormOptions
    facts = Facts(
        formula="A V; behind the block x - s softmax(x' x'^T / t) x, then LayerNorm",
        source="Guo et al. 2023, arXiv 2303.06562",
        row_sum="1",
        weight_range="[0, 1]",
        negative=False,
        flops=products(4),
        cross=False,
        limits="it follows self attention only: cross attention is plain softmax, and so is a module by itself, whose "
        "after_block nobody calls",
        departures=(
            "behind attention only, where the authors' ImageNet code has one at every LayerNorm; s is 0.1 "
            "for every task"
        ),
    )

    def __init__(self, site: Site, options: ContraNormOptions) -> None:
        super().__init__(site, options)
        self._followed = True  # by after_block, the last time

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if not self._followed and self.training:
            warnings.warn(
                "attention 'contranorm' is softmax by itself: call after_block(x) on the sum of the block's output and "
                "its residual, before the layer norm that reads it",
                stacklevel=3,
            )
        self._followed = not self.training  # in evaluation one may look at it by itself
        return super()._attend(call)

    def after_block(
        self,
        x: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        state: dict[str, Tensor] | None = None,
    ) -> Tensor:
        self._followed = True
        seen = x
        if state is not None:
            if "contranorm_seen" in state:
                seen = torch.cat([state["contranorm_seen"], x], dim=1)
            state["contranorm_seen"] = seen
        query, key = self._direction(x), self._direction(seen)
        # The functional divides by sqrt(width), which has no place here.
        query = query * (x.shape[-1] ** 0.5 / self.options.contranorm_temperature)
        common = functional.softmax_attention(
            query.unsqueeze(1),
            key.unsqueeze(1),
            seen.unsqueeze(1),
            key_padding_mask=key_padding_mask,
            causal=causal,
            backend=self.backend,
        )
        return x - self.options.contranorm_scale * common.squeeze(1)

    def _direction(self, x: Tensor) -> Tensor:
        return F.normalize(x, dim=-1) if self.options.contranorm_similarity == "cosine" else x
