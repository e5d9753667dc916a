"""Differential attention (Ye et al. 2024, arXiv 2410.05258).

::

    lambda = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + lambda_init
    lambda_init = 0.8 - 0.6 exp(-0.3 depth), depth from 0
    P = softmax(Q1 K1^T / sqrt(d)) - lambda softmax(Q2 K2^T / sqrt(d))
    Y = (1 - lambda_init) RMSNorm(P V)

``h`` heads of the configuration become ``h / 2`` differential heads: heads ``2i`` and ``2i + 1`` give the two groups of
queries and keys, and their values side by side are values of ``2 head_dim``, as in the authors' code. An odd number of
heads is refused. Width and projections stay as they are.

=============================  ==================================================================================
source                         code
=============================  ==================================================================================
``lambda_q1`` .. ``lambda_k2``   the same, each ``[head_dim]``, shared by the heads, from N(0, 0.1^2)
RMSNorm                        ``head_norm``: each head by itself, one weight of ``2 head_dim`` for all, epsilon 1e-5
``depth``                      the layer's number in its stack
=============================  ==================================================================================

Weights are ``[batch, heads / 2, target, source]``, before the RMSNorm; a row sums to ``1 - lambda``. All of it from the
authors' code, which has no dropout here: ours falls on ``P``.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from gpam.attention import functional, parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Call, Masks
from gpam.attention.facts import Facts, bounds_of_sum
from gpam.attention.options import NoOptions
from gpam.attention.registry import register
from gpam.attention.site import Site
from gpam.errors import UsageError


@register("differential")
class Differential(Mechanism):
    mixes_only = False
    of_components = ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2")
    facts = Facts(
        formula="(1 - lambda_init) RMSNorm((softmax(S1) - lambda softmax(S2)) V), heads in pairs",
        source="Ye et al. 2024, arXiv 2410.05258",
        row_sum="1 - lambda, before the RMSNorm",
        weight_range="[-lambda, 1], before the RMSNorm",
        negative=True,
        extra_parameters=lambda site, options: 6 * site.head_dim,
        departures="dropout falls on the weights: the authors' code has none",
    )

    def __init__(self, site: Site, options: NoOptions) -> None:
        super().__init__(site, options)
        if site.num_heads % 2:
            raise UsageError(
                f"attention 'differential' joins heads in pairs: got {site.num_heads} heads, wanted an even number"
            )
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * site.layer)
        for name in self.of_components:
            setattr(self, name, nn.Parameter(torch.empty(site.head_dim).normal_(std=0.1)))
        self.head_norm = nn.RMSNorm(2 * site.head_dim, eps=1e-5)

    @property
    def share(self) -> Tensor:
        """``lambda``, a tensor of no dimensions."""
        q1, k1, q2, k2 = map(parts.wide, (self.lambda_q1, self.lambda_k1, self.lambda_q2, self.lambda_k2))
        return torch.exp((q1 * k1).sum()) - torch.exp((q2 * k2).sum()) + self.lambda_init

    def row_sum(self) -> Tensor:
        return 1 - self.share

    def weight_range(self) -> tuple[Tensor, Tensor]:
        return bounds_of_sum(1.0, -self.share)

    def _masks(self, q: Tensor, k: Tensor, *given: Any) -> Masks:
        masks = super()._masks(q, k, *given)
        if masks.attn_mask is not None and masks.attn_mask.shape[1] > 1:
            raise UsageError("Differential takes heads in pairs: got an attn_mask for each head, wanted one for all")
        return masks

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        visible = masks.visible(q, k)
        first, second = (
            parts.masked_softmax(masks.scores(q_group, k_group), visible)
            for q_group, k_group in zip(_groups(q), _groups(k), strict=True)
        )
        return first - self.share * second

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        q, k, v = (call.finite_at_padding() if call.need_weights else call).tensors
        wide_values = torch.cat(_groups(v), dim=-1)
        if call.need_weights:
            weights = self._weights(q, k, call.masks)
            heads = self.dropped(weights) @ wide_values
        else:
            weights = None
            heads = functional.sum_of_softmaxes(
                _groups(q),
                _groups(k),
                wide_values,
                (1.0, -self.share),
                dropout=self.active_dropout,
                dropout_on="combined",
                backend=self.backend,
                **vars(call.masks),
            )
        heads = (1 - self.lambda_init) * self.head_norm(heads)
        return torch.stack(heads.chunk(2, dim=-1), dim=2).flatten(1, 2), weights


def _groups(x: Tensor) -> tuple[Tensor, Tensor]:
    """The even and the odd heads, each ``[batch, heads / 2, length, head_dim]``."""
    return x[:, 0::2], x[:, 1::2]
