"""Kind "core": the attention core, forward and backward, between the projections.

daGPAM's negative query is given like the queries, as its map belongs to the projections; ``dagpam-and-map`` has both.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gpam.attention import Mechanism, Site, build, mechanism_class, names
from gpam.errors import UsageError
from gpam_suite.benchmark.comparison import Contender, relative_error
from gpam_suite.benchmark.counting import limit
from gpam_suite.benchmark.exact import can_check_rows, output_rows, rows_to_check
from gpam_suite.benchmark.peers import PEERS, Peer, Replaced, backends
from gpam_suite.benchmark.settings import Settings


@dataclass(frozen=True)
class Shape:
    """``length`` queries and ``source`` keys (default: as many) in every one of ``batch`` sequences.

    With ``padded`` a third of the sequences are a third shorter. ``dtype``: float32, or auto for bfloat16 on a GPU.
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
    """Random queries, keys and values in fairseq's layout, the queries' input, negative queries, padding, and an
    upstream gradient."""

    def __init__(self, shape: Shape, seed: int, device: str) -> None:
        self.shape, self.device = shape, device
        self.source = shape.source or shape.length
        self.dtype = getattr(torch, "float32" if device == "cpu" else "bfloat16", None)
        if shape.dtype != "auto":
            self.dtype = getattr(torch, shape.dtype)
        generator = torch.Generator().manual_seed(seed)
        heads, dim = shape.heads, shape.head_dim

        def rows(length: int) -> Tensor:
            drawn = torch.randn(length, shape.batch, heads, dim, generator=generator)
            return drawn.to(device, self.dtype).requires_grad_()

        self.leaves = [rows(shape.length), rows(self.source), rows(self.source)]
        drawn = torch.randn(shape.batch, shape.length, heads * dim, generator=generator)
        self.leaves += [drawn.to(device, self.dtype).requires_grad_(), rows(shape.length)]
        self.padding = None
        if shape.padded:
            self.padding = torch.zeros(shape.batch, self.source, dtype=torch.bool, device=device)
            self.padding[: shape.batch // 3, self.source * 2 // 3 :] = True
        upstream = torch.randn(shape.batch, heads, shape.length, dim, generator=generator)
        self.upstream = upstream.to(device, self.dtype)
        self.rows = rows_to_check(shape.batch, heads, shape.length, self.source, seed)
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

    @property
    def masks(self) -> dict[str, Any]:
        return {"key_padding_mask": self.padding, "causal": self.shape.causal}


def contenders(shape: Mapping[str, Any], settings: Settings) -> dict[str, Callable[[], Contender]]:
    """Every mechanism of the registry, the peers, and softmax and daGPAM by each backend of ours."""
    given = Shape(**shape)
    inputs = Inputs(given, settings.seed, settings.device)
    wanted: dict[str, list[Tensor]] = {}
    peers = PEERS | backends(torch.device(settings.device).type)
    made = {name: Peer(name, None) for name in names()} | {"dagpam-and-map": Peer("dagpam", None)} | peers
    return {name: lambda name=name, peer=peer: _contender(name, peer, inputs, wanted) for name, peer in made.items()}


def _contender(name: str, peer: Peer, inputs: Inputs, wanted: dict[str, list[Tensor]]) -> Contender:
    shape, of = inputs.shape, peer.of
    facts = mechanism_class(of).facts
    role = "decoder" if shape.causal else "encoder" if inputs.source == shape.length else "cross"
    if (shape.causal and not facts.causal) or (role == "cross" and not facts.cross):
        return Contender(name, refusal=facts.limits)
    if len(inputs.rows) < shape.length and not can_check_rows(of):
        return Contender(name, refusal="too long to be checked whole")
    torch.manual_seed(1)
    site = Site(shape.heads * shape.head_dim, shape.heads, role, layer=1, layers=3, dropout=shape.dropout)
    try:
        mechanism = build(of, site).to(inputs.device, inputs.dtype)
    except UsageError as error:
        return Contender(name, refusal=str(error))
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
            wanted[model] = _exact(of, model, mechanism, inputs)
        called.eval()  # numbers are compared without dropout
        out = call()
        grads = torch.autograd.grad(out, leaves, inputs.at_rows, allow_unused=True)
        called.train()
        found = zip([out.detach()[:, :, inputs.rows], *grads], wanted[model], strict=True)
        pairs = [(torch.zeros_like(w) if g is None else g, w) for g, w in found if w is not None]
        return relative_error(*zip(*pairs, strict=True))

    return Contender(name, run, error, limit(of, torch.device(inputs.device).type))


def _exact(of: str, model: str, mechanism: Mechanism, inputs: Inputs) -> list[Tensor | None]:
    """Output rows, and gradients of inputs and parameters, in float64."""
    double = copy.deepcopy(mechanism).double().eval()
    leaves = [leaf.detach().double().requires_grad_() for leaf in inputs.leaves]
    inputs.prepare(model, double, leaves)
    q, k, v, x = inputs.views(leaves)
    out = output_rows(of, double, q, k, v, x, inputs.rows, inputs.padding, inputs.shape.causal)
    upstream = inputs.upstream.double()
    upstream = upstream if len(inputs.rows) == inputs.shape.length else upstream[:, :, inputs.rows]
    grads = torch.autograd.grad(out, [*leaves, *double.parameters()], upstream, allow_unused=True)
    return [out.detach(), *grads]
