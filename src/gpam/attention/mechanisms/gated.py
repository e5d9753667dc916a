"""Gated attention (Qiu et al. 2025, arXiv 2505.06708): a sigmoid gate on what softmax attention gathers.

::

    Y = sigmoid(X W_gate) * (A V)          A = softmax(Q K^T / sqrt(d_qk) + mask), X the input of the queries

The gate stands behind the weighted sum, before the output projection: one number for each component of each head
(``gate_granularity=elementwise``, the source's best and the default here), or one a head (``headwise``). ``W_gate`` is
``gate_proj``, without bias and drawn from N(0, 0.02^2) as in the authors' code, so that every gate starts near 1/2. The
weights returned are those of the softmax, before the gate (row sum 1). Dropout falls on ``A``, as there.
"""

import dataclasses

import torch
from torch import Tensor, nn

from gpam.attention import parts
from gpam.attention.call import Call
from gpam.attention.facts import Facts, products
from gpam.attention.mechanisms.softmax import Softmax
from gpam.attention.options import option
from gpam.attention.registry import register
from gpam.attention.site import Site


@dataclasses.dataclass(frozen=True)
class GatedOptions:
    gate_granularity: str = option(
        "elementwise",
        "one gate for each component of each head, or one a head",
        choices=("elementwise", "headwise"),
    )


def _gates(site: Site, options: GatedOptions) -> int:
    return site.embed_dim if options.gate_granularity == "elementwise" else site.num_heads


@register("gated")
class Gated(Softmax):
    Options = GatedOptions
    mixes_only = False
    needs_query_input = True
    facts = Facts(
        formula="sigmoid(X W) * (A V)",
        source="Qiu et al. 2025, arXiv 2505.06708",
        row_sum="1, before the gate",
        weight_range="[0, 1], before the gate",
        negative=False,
        extra_parameters=lambda site, options: site.embed_dim * _gates(site, options),
        flops=lambda site, target, source, options: (
            products(2)(site, target, source, options) + 2 * target * site.embed_dim * _gates(site, options)
        ),
    )

    def __init__(self, site: Site, options: GatedOptions) -> None:
        super().__init__(site, options)
        self.gate_proj = nn.Linear(site.embed_dim, _gates(site, options), bias=False)
        nn.init.normal_(self.gate_proj.weight, std=0.02)

    def gate(self, query_input: Tensor) -> Tensor:
        """``sigmoid(X W_gate)``, ``[batch, heads, target, head_dim or 1]``."""
        return torch.sigmoid(parts.split_heads(self.gate_proj(query_input), self.site.num_heads))

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        gate = self.gate(self.required_query_input(call))
        output, weights = super()._attend(call)
        return gate * output, weights
