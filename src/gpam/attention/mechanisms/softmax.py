"""Softmax attention, the baseline: ``P = softmax(Q K^T / sqrt(d_qk) + mask)``, ``Y = P V`` (arXiv 1706.03762)."""

from torch import Tensor

from gpam.attention import functional, parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Call, Masks
from gpam.attention.facts import Facts
from gpam.attention.registry import register


@register("softmax")
class Softmax(Mechanism):
    """Rows sum to 1, entries lie in ``[0, 1]``; no parameters of its own."""

    facts = Facts(
        formula="A V, A = softmax(Q K^T / sqrt(d))",
        source="Vaswani et al. 2017, arXiv 1706.03762",
        row_sum="1",
        weight_range="[0, 1]",
        negative=False,
    )

    def row_sum(self) -> float:
        return 1.0

    def weight_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        return parts.masked_softmax(masks.scores(q, k), masks.visible(q, k))

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if call.need_weights:
            return super()._attend(call)
        q, k, v = call.tensors
        output = functional.sum_of_softmaxes(
            (q,), k, v, (self.row_sum(),), dropout=self.active_dropout, backend=self.backend, **vars(call.masks)
        )
        return output, None
