"""Kind "core": the attention core, forward and backward, between the projections.

daGPAM's negative query is given like the queries, as its map belongs to the projections; ``dagpam-and-map`` has both.
"""

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpam.attention import Mechanism, Site, build, mechanism_class, names
from gpam.errors import UsageError
from gpam_suite.benchmark.comparison import Contender, Maker, Settings, relative_error
from gpam_suite.benchmark.counting import SUMS, limit
from gpam_suite.benchmark.peers import PEERS, Peer, Replaced, backends
from gpam_suite.benchmark.profiling import profiled

#: Above so many scores (batch x heads x target x source) only some rows of the output are checked.
MOST_SCORES = 1 << 24
SAMPLED_ROWS = 48


@dataclass(frozen=True)
class Shape:
    """``length`` queries and ``source`` keys (default: as many) in every one of ``batch`` sequences.

    With ``padded`` a third of the sequences are a third shorter. ``dtype``: float32, float16, bfloat16,
    or auto: bfloat16 on a GPU, else float32.
    """

    batch: int
    heads: int
    head_dim: int
    length: int
    source: int = 0
    causal: bool = False
    padded: bool = False
    dropout: float = 0.0
    dtype: str = "auto"


class Inputs:
    """Random queries, keys, values, the queries' input and negative queries (``leaves``, in fairseq's layout), padding,
    the rows of the output that are checked, and an upstream gradient, whole and at those rows."""

    def __init__(self, shape: Shape, settings: Settings) -> None:
        self.shape, self.device = shape, settings.device
        self.source = shape.source or shape.length
        auto = "float32" if self.device == "cpu" else "bfloat16"
        self.dtype = getattr(torch, auto if shape.dtype == "auto" else shape.dtype)
        generator = torch.Generator().manual_seed(settings.seed)
        batch, heads, dim = shape.batch, shape.heads, shape.head_dim

        def drawn(*size: int) -> Tensor:
            return torch.randn(size, generator=generator).to(self.device, self.dtype)

        sizes = [(length, batch, heads, dim) for length in (shape.length, self.source, self.source)]
        sizes += [(batch, shape.length, heads * dim), sizes[0]]
        self.leaves = [drawn(*size).requires_grad_() for size in sizes]
        self.upstream = drawn(batch, heads, shape.length, dim)
        padding = None
        if shape.padded:
            padding = torch.zeros(batch, self.source, dtype=torch.bool, device=self.device)
            padding[: batch // 3, self.source * 2 // 3 :] = True
        self.masks = {"key_padding_mask": padding, "causal": shape.causal}
        self.rows = torch.arange(shape.length)
        self.whole = batch * heads * shape.length * self.source <= MOST_SCORES
        if not self.whole:
            between = torch.randperm(shape.length - 2, generator=generator)[: SAMPLED_ROWS - 2] + 1
            self.rows = torch.cat([torch.tensor([0, shape.length - 1]), between]).sort().values
        self.at_rows = torch.zeros_like(self.upstream)
        self.at_rows[:, :, self.rows] = self.upstream[:, :, self.rows]

    @staticmethod
    def views(leaves: list[Tensor]) -> list[Tensor]:
        """``q, k, v`` as ``[batch, heads, length, head_dim]``, and the queries' input."""
        return [leaf.permute(1, 2, 0, 3) for leaf in leaves[:3]] + [leaves[3]]

    def prepare(self, name: str, mechanism: Mechanism, leaves: list[Tensor]) -> None:
        """What a mechanism in the middle of a stack finds there: values of the first layer, its negative query."""
        if mechanism.needs_every_layer:
            first = build(name, dataclasses.replace(mechanism.site, layer=0)).to(leaves[0])
            first.stack = mechanism.stack
            q, k, v, x = self.views([leaf.detach() for leaf in leaves])
            first(q, k, v, query_input=x, **self.masks)
        if name == "dagpam":
            mechanism.negative_query = lambda q: leaves[4].permute(1, 2, 0, 3)

    def exact(self, name: str, mechanism: Mechanism, leaves: list[Tensor]) -> Tensor:
        """The rows of the output that are checked, by the weights; one by one where the whole would not fit."""
        if self.whole:
            self.prepare(name, mechanism, leaves)
            q, k, v, x = self.views(leaves)
            return mechanism(q, k, v, query_input=x, need_weights=True, **self.masks)[0]
        rows, padding = [], self.masks["key_padding_mask"]
        for row in self.rows.tolist():
            at, seen = slice(row, row + 1), slice(row + 1 if self.shape.causal else self.source)
            of_row = [leaves[0][at], leaves[1][seen], leaves[2][seen], leaves[3][:, at], leaves[4][at]]
            hidden = None if padding is None else padding[:, seen]
            self.prepare(name, mechanism, of_row)
            q, k, v, x = self.views(of_row)
            rows.append(mechanism(q, k, v, query_input=x, key_padding_mask=hidden, need_weights=True)[0])
        return torch.cat(rows, 2)


def contenders(shape: Mapping[str, Any], settings: Settings) -> tuple[list[str], Maker]:
    """Every mechanism of the registry, the peers, and softmax and daGPAM by each backend of ours."""
    inputs = Inputs(Shape(**shape), settings)
    wanted: dict[str, list[Tensor | None]] = {}
    peers = {name: Peer(name, None) for name in names()} | {"dagpam-and-map": Peer("dagpam", None)}
    peers |= PEERS | backends(settings.device)
    return list(peers), lambda name: _contender(name, peers[name], inputs, wanted)


def _contender(name: str, peer: Peer, inputs: Inputs, wanted: dict[str, list[Tensor | None]]) -> Contender:
    shape, of = inputs.shape, peer.of
    facts = mechanism_class(of).facts
    role = "decoder" if shape.causal else "encoder" if inputs.source == shape.length else "cross"
    if role == "cross" and not facts.cross:
        raise UsageError(facts.limits)
    if not inputs.whole and of not in SUMS:  # only their rows follow from the queries of that row alone
        raise UsageError("too long to be checked whole")
    torch.manual_seed(1)
    site = Site(shape.heads * shape.head_dim, shape.heads, role, layer=1, layers=3, dropout=shape.dropout)
    mechanism = build(of, site).to(inputs.device, inputs.dtype)
    model = name if name == "dagpam-and-map" else of
    inputs.prepare(model, mechanism, inputs.leaves)
    called = mechanism if peer.compute is None else Replaced(mechanism, peer.compute)
    leaves = [*inputs.leaves, *mechanism.parameters()]

    def call() -> Tensor:
        q, k, v, x = inputs.views(inputs.leaves)
        return called(q, k, v, query_input=x, **inputs.masks)[0]

    def run() -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(call(), leaves, inputs.upstream, allow_unused=True)

    def error() -> float:
        if model not in wanted:
            wanted[model] = _exact(model, mechanism, inputs)
        called.eval()  # numbers are compared without dropout
        out = call()
        grads = torch.autograd.grad(out, leaves, inputs.at_rows, allow_unused=True)
        called.train()
        found = zip([out.detach()[:, :, inputs.rows], *grads], wanted[model], strict=True)
        pairs = [(torch.zeros_like(w) if g is None else g, w) for g, w in found if w is not None]
        return relative_error(*zip(*pairs, strict=True))

    least = limit(of, inputs.device, max(inputs.shape.length, inputs.source))
    return Contender(run, error, lambda: {"limit": least, **profiled(run, inputs.device)})


def _exact(model: str, mechanism: Mechanism, inputs: Inputs) -> list[Tensor | None]:
    """Output rows, and gradients of inputs and parameters, in float64."""
    double = copy.deepcopy(mechanism).double().eval()
    leaves = [leaf.detach().double().requires_grad_() for leaf in inputs.leaves]
    out = inputs.exact(model, double, leaves)
    upstream = inputs.upstream.double()[:, :, inputs.rows]
    grads = torch.autograd.grad(out, [*leaves, *double.parameters()], upstream, allow_unused=True)
    return [out.detach(), *grads]
