"""Softmax attention, the baseline: ``P = softmax(Q K^T / sqrt(d_qk) + mask)``, ``Y = P V`` (arXiv 1706.03762)."""

from torch import Tensor

from gpam.attention import functional, reference
from gpam.attention.base import Mechanism
from gpam.attention.facts import Facts, no_parameters, products
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
        extra_parameters=no_parameters,
        flops=products(2),
    )

    def row_sum(self) -> float:
        return 1.0

    def weight_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def weights(self, q: Tensor, k: Tensor, *, key_padding_mask: Tensor | None = None, causal: bool = False) -> Tensor:
        visible = reference.visible_sources(q, k, key_padding_mask, causal)
        return reference.masked_softmax(reference.scaled_scores(q, k), visible)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_input: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
        state: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        if need_weights:
            return super().forward(q, k, v, key_padding_mask=key_padding_mask, causal=causal, need_weights=True)
        output = functional.softmax_attention(
            q,
            k,
            v,
            key_padding_mask=key_padding_mask,
            causal=causal,
            dropout=self.active_dropout,
            backend=self.backend,
        )
        return output, None
