"""Differential attention, second form (Ye, Dong, Sun and Wei, "Differential Transformer V2", January 2026).

::

    P = softmax(Q K^T / sqrt(d)) - sigmoid(l) softmax(Q2 K^T / sqrt(d)),   Y = P V
    Q2 = X W_Q2,  l = X W_l one number for each token and head,  X the input of the queries

=========  ====================================================================================
source     code
=========  ====================================================================================
``W_Q2``   ``query_second``, ``embed_dim x embed_dim``: half of the source's doubled query projection
``W_l``    ``share_proj``, ``embed_dim x heads``
=========  ====================================================================================

Keys and values are shared by the two; there is no RMSNorm and no fixed factor. Neither map has a bias, as in the
authors' code (microsoft/unilm, Diff-Transformer-V2), which does not say how they are initialised: ``W_Q2`` starts like
fairseq's query projection (Xavier uniform, gain 1/sqrt(2)), ``W_l`` like any ``nn.Linear``. A row sums to
``1 - sigmoid(l)``, between 0 and 1, about a half at the start. There is no dropout in their code; ours falls on ``P``.
"""

import torch
from torch import Tensor, nn

from gpam.attention import functional, parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Call
from gpam.attention.facts import Facts, products
from gpam.attention.options import NoOptions
from gpam.attention.registry import register
from gpam.attention.site import Site


@register("differential_v2")
class DifferentialV2(Mechanism):
    mixes_only = False
    needs_query_input = True
    facts = Facts(
        formula="(softmax(S1) - sigmoid(l) softmax(S2)) V, two queries for each key, l = X W a token and head",
        source="Ye, Dong, Sun and Wei 2026, Differential Transformer V2 (microsoft/unilm)",
        row_sum="not fixed: 1 - sigmoid(l) of each token",
        weight_range="[-1, 1]",
        negative=True,
        extra_parameters=lambda site, options: site.embed_dim * (site.embed_dim + site.num_heads),
        flops=lambda site, target, source, options: (
            products(3)(site, target, source, options) + 2 * target * site.embed_dim * (site.embed_dim + site.num_heads)
        ),
        departures=(
            "initial values are ours, as the authors give none: W_Q2 like fairseq's query projection, W_l "
            "like any nn.Linear; dropout falls on the weights, where their code has none"
        ),
    )

    def __init__(self, site: Site, options: NoOptions) -> None:
        super().__init__(site, options)
        self.query_second = nn.Linear(site.embed_dim, site.embed_dim, bias=False)
        nn.init.xavier_uniform_(self.query_second.weight, gain=2**-0.5)
        self.share_proj = nn.Linear(site.embed_dim, site.num_heads, bias=False)

    def weight_range(self) -> tuple[float, float]:
        return -1.0, 1.0

    def share(self, query_input: Tensor) -> Tensor:
        """``sigmoid(l)``, ``[batch, heads, target, 1]``."""
        return torch.sigmoid(parts.split_heads(self.share_proj(query_input), self.site.num_heads))

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        q, k, v = (call.finite_at_padding() if call.need_weights else call).tensors
        query_input = self.required_query_input(call)
        second = parts.split_heads(self.query_second(query_input), self.site.num_heads)
        share = self.share(query_input)
        if call.need_weights:
            visible = call.masks.visible(q, k)
            weights = parts.masked_softmax(call.masks.scores(q, k), visible)
            weights = weights - share * parts.masked_softmax(call.masks.scores(second, k), visible)
            return self.dropped(weights) @ v, weights
        output = functional.sum_of_softmaxes(
            (q, second),
            k,
            v,
            (1.0, -share),
            dropout=self.active_dropout,
            dropout_on="combined",
            backend=self.backend,
            **vars(call.masks),
        )
        return output, None
