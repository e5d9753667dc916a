"""Dual-attention GPAM, the paper's mechanism (Heo and Choi 2024, arXiv 2410.15578).

::

    S+ = Q K^T / sqrt(d_qk)                    P+ = softmax(S+ + mask)
    S- = (ReLU(Q) W_Q^-) K^T / sqrt(d_qk)      P- = softmax(S- + mask)
    P  = (1 + lambda+) P+  -  lambda- P-       Y  = P V

A row sums to ``1 + lambda+ - lambda-``; its entries lie in ``[-lambda-, 1 + lambda+]`` where lambdas are >= 0.

=============  ===============================================================================
paper          code
=============  ===============================================================================
``W_Q^-``      ``query_neg``, ``[head_dim, head_dim]`` or ``[heads, head_dim, head_dim]``
``lambda+``    ``lambda_pos``
``lambda-``    ``lambda_neg``
``P+``, ``P-``  the positive and the negative branch
=============  ===============================================================================

What the paper leaves open is an option, with a mark in its help: [P] the paper itself, [2] second hand,
[D] derived, [?] unknown and chosen by us. docs/paper-unknowns.md gives the reasons.
"""

import dataclasses

import torch
from torch import Tensor, nn

from gpam.attention import functional, parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Call, Masks
from gpam.attention.facts import Facts, bounds_of_sum, products
from gpam.attention.options import option
from gpam.attention.registry import register
from gpam.attention.site import Site
from gpam.errors import UsageError
from gpam.tracing import runs_as_called


@dataclasses.dataclass(frozen=True)
class DaGPAMOptions:
    lambda_pos: float = option(0.5, "lambda+: P = (1 + lambda+) P+ - lambda- P-; the best value varies by task [P] [?]")
    lambda_neg: float = option(0.5, "lambda-: the weight of the negative branch; the best value varies by task [P] [?]")
    lambdas: str = option(
        "fixed",
        "fixed, or learned from the given values: one pair a module, one a head (granularity unknown [?]), or one "
        "number a module for both, so that rows keep a sum of 1: any number, or one from -1 to 0, so that no weight is "
        "negative (two controls)",
        choices=("fixed", "trainable", "trainable_per_head", "trainable_equal", "trainable_convex"),
    )
    combination: str = option(
        "one_plus",
        "one_plus: (1 + lambda+) P+ - lambda- P- [2]; plain: lambda+ P+ - lambda- P-, the other reading [?]",
        choices=("one_plus", "plain"),
    )
    query_neg_heads: str = option(
        "shared", "W_Q^- shared by the heads [D], or one for each head [?]", choices=("shared", "per_head")
    )
    query_neg_init: str = option(
        "negative_identity",
        "initial W_Q^-: -I, near the lemma's S- = -S+ [2], or Xavier's uniform draw [?], or I (for a control)",
        choices=("negative_identity", "xavier", "identity"),
    )
    query_neg_activation: str = option(
        "relu", "what stands between Q and W_Q^-: relu [2], or none (ablation)", choices=("relu", "none")
    )
    negative_key: str = option(
        "shared",
        "keys of the negative branch: the positive ones [2], or K W_K^- of their own (ablation)",
        choices=("shared", "separate"),
    )
    negative_in: str = option(
        "all",
        "where daGPAM stands: in every attention [D], in self attention only, or in one of the three kinds; elsewhere "
        "softmax stays [?]",
        choices=("all", "self", "encoder", "decoder", "cross"),
    )
    dropout_on: str = option(
        "branches",
        "attention dropout on each of P+ and P-, or once on the combined P: two different models [?]",
        choices=("branches", "combined"),
    )

    def __post_init__(self) -> None:
        kept, wanted = {
            "trainable_equal": ("sum at 1", "equal lambdas"),
            "trainable_convex": ("sum at 1 and its weights above 0", "equal lambdas between -1 and 0"),
        }.get(self.lambdas, (None, None))
        right = self.lambda_pos == self.lambda_neg and self.combination == "one_plus"
        if self.lambdas == "trainable_convex":
            right = right and -1 < self.lambda_pos < 0
        if kept and not right:
            raise UsageError(
                f"lambdas '{self.lambdas}' keeps a row's {kept}: got lambda_pos {self.lambda_pos}, lambda_neg "
                f"{self.lambda_neg} and combination '{self.combination}', wanted {wanted} and 'one_plus'"
            )


def _extra_parameters(site: Site, options: DaGPAMOptions) -> int:
    maps = 1 + (options.negative_key == "separate")
    heads = site.num_heads if options.query_neg_heads == "per_head" else 1
    lambdas = {"fixed": 0, "trainable": 2, "trainable_per_head": 2 * site.num_heads}
    return maps * heads * site.head_dim**2 + lambdas.get(options.lambdas, 1)


def _flops(site: Site, target: int, source: int, options: DaGPAMOptions) -> int:
    mapped = target + (source if options.negative_key == "separate" else 0)
    return products(3)(site, target, source, options) + 2 * mapped * site.embed_dim * site.head_dim


@register("dagpam")
class DaGPAM(Mechanism):
    Options = DaGPAMOptions
    facts = Facts(
        formula="((1 + lambda+) P+ - lambda- P-) V, P- = softmax(ReLU(Q) W_Q^- K^T / sqrt(d))",
        source="Heo and Choi 2024, arXiv 2410.15578",
        row_sum="1 + lambda+ - lambda-",
        weight_range="[-lambda-, 1 + lambda+]",
        negative=True,
        extra_parameters=_extra_parameters,
        flops=_flops,
        departures="what the paper leaves open is an option each: see paper-unknowns.md",
    )

    def row_sum(self) -> float | Tensor:
        return self.weight_pos + self.weight_neg

    def weight_range(self) -> tuple[Tensor, Tensor]:
        return bounds_of_sum(self.weight_pos, self.weight_neg)

    def __init__(self, site: Site, options: DaGPAMOptions) -> None:
        super().__init__(site, options)
        self.query_neg = self._square_map()
        self.key_neg = self._square_map() if options.negative_key == "separate" else None
        self._start_maps()
        if options.lambdas == "fixed":
            self.lambda_pos: float | Tensor = options.lambda_pos
            self.lambda_neg: float | Tensor = options.lambda_neg
        elif options.lambdas == "trainable_convex":
            self.mixture = nn.Parameter(torch.logit(torch.tensor(-options.lambda_pos)) / 4)
        else:
            shape = (site.num_heads,) if options.lambdas == "trainable_per_head" else ()
            self.lambda_pos = nn.Parameter(torch.full(shape, options.lambda_pos))
            if options.lambdas != "trainable_equal":  # there it is both: one parameter of two names may come apart
                self.lambda_neg = nn.Parameter(torch.full(shape, options.lambda_neg))

    @classmethod
    def used_at(cls, site: Site, options: DaGPAMOptions) -> bool:
        return options.negative_in in ("all", site.role) or (options.negative_in == "self" and site.role != "cross")

    def _square_map(self) -> nn.Parameter:
        heads = (self.site.num_heads,) if self.options.query_neg_heads == "per_head" else ()
        return nn.Parameter(torch.empty(*heads, self.site.head_dim, self.site.head_dim))

    def _start_maps(self) -> None:
        """``W_Q^-`` as the options say; a separate negative key starts as the positive one (``W_K^- = I``)."""
        identity = torch.eye(self.site.head_dim)
        with torch.no_grad():
            if self.options.query_neg_init == "xavier":
                for head in self.query_neg.view(-1, self.site.head_dim, self.site.head_dim):
                    nn.init.xavier_uniform_(head)
            else:
                self.query_neg.copy_(identity if self.options.query_neg_init == "identity" else -identity)
            if self.key_neg is not None:
                self.key_neg.copy_(identity)

    @property
    def weight_pos(self) -> float | Tensor:
        """The factor of ``P+``: ``1 + lambda+``, or ``lambda+`` in the plain reading."""
        if self.options.lambdas == "trainable_convex":
            return 1 - self.weight_neg
        lambda_pos = parts.wide(self.lambda_pos)
        return 1 + lambda_pos if self.options.combination == "one_plus" else lambda_pos

    @property
    def weight_neg(self) -> float | Tensor:
        """The factor of ``P-``: ``-lambda-``. A convex one is ``sigmoid(4 mixture)``: at a half it moves as fast as a
        learned lambda does, whose place the number takes."""
        if self.options.lambdas == "trainable_convex":
            return torch.sigmoid(4 * parts.wide(self.mixture))
        return -parts.wide(self.lambda_pos if self.options.lambdas == "trainable_equal" else self.lambda_neg)

    def negative_query(self, q: Tensor) -> Tensor:
        """``Q^- = ReLU(Q) W_Q^-``, head by head."""
        return _mapped(torch.relu(q) if self.options.query_neg_activation == "relu" else q, self.query_neg)

    def negative_key(self, k: Tensor) -> Tensor:
        return k if self.key_neg is None else _mapped(k, self.key_neg)

    def branches(self, q: Tensor, k: Tensor, masks: Masks) -> tuple[Tensor, Tensor]:
        """``P+`` and ``P-``, each ``[batch, heads, target, source]``, before dropout."""
        visible = masks.visible(q, k)
        positive = masks.scores(q, k)
        negative = masks.scores(self.negative_query(q), self.negative_key(k))
        return parts.masked_softmax(positive, visible), parts.masked_softmax(negative, visible)

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        positive, negative = self.branches(q, k, masks)
        weights = parts.per_head(self.weight_pos) * positive + parts.per_head(self.weight_neg) * negative
        return weights.to(q.dtype)

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if call.need_weights and not self.active_dropout:
            return super()._attend(call)
        if call.need_weights or self.key_neg is not None:  # whose gradient sums over all keys
            call = call.finite_at_padding()
        q, k, v = call.tensors
        output = functional.sum_of_softmaxes(
            (q, self.negative_query(q)),
            (k, self.negative_key(k)),
            v,
            (self.weight_pos, self.weight_neg),
            dropout=self.active_dropout,
            dropout_on=self.options.dropout_on,
            backend=self.backend,
            **vars(call.masks),
        )
        return output, self._weights(q, k, call.masks) if call.need_weights else None


def _mapped(x: Tensor, weight: Tensor) -> Tensor:
    """``x @ weight``; with one map for all heads as one product over the rows as they lie, in the layout of ``x``."""
    if weight.dim() > 2 or not runs_as_called():
        return x @ weight
    outer = sorted(range(3), key=x.stride, reverse=True)
    rows = x.permute(*outer, 3)
    mapped = (rows.reshape(-1, x.shape[-1]) @ weight).view(rows.shape)
    return mapped.permute(*(outer.index(axis) for axis in range(3)), 3)
