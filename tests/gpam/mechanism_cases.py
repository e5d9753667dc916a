"""Every mechanism and the variants worth testing, built with random parameters and called alike."""

import dataclasses
import inspect

import independent_formulas as independent
import pytest
import torch
from torch import Tensor

from gpam.attention import Site, build, mechanism_class, names, options_of, parts
from gpam.attention.base import StackMemory

HEADS, HEAD_DIM, LAYER = 4, 3, 1
EMBED = HEADS * HEAD_DIM
PADDING = [[False, False, False, False, True], [True, False, False, False, False], [False] * 5]

#: For ``gradcheck``: along one random direction, in which every element of every input takes part. A share of 1 % in
#: the gradient of one element of a hundred is more than the tolerance.
ONE_DIRECTION = {"fast_mode": True, "rtol": 1e-6, "atol": 1e-8}
#: Options beside the defaults that change what is computed.
VARIANTS = {
    "dagpam": [
        {"lambda_pos": 0.2, "lambda_neg": 0.9},
        {"combination": "plain", "lambda_pos": 1.3},
        {"lambdas": "trainable"},
        {"lambdas": "trainable_per_head", "query_neg_heads": "per_head", "query_neg_init": "xavier"},
        {"lambdas": "trainable_equal"},
        {"lambdas": "trainable_convex", "lambda_pos": -0.3, "lambda_neg": -0.3},
        {"query_neg_activation": "none"},
        {"negative_key": "separate"},
        {"negative_key": "separate", "query_neg_heads": "per_head", "dropout_on": "combined"},
    ],
    "gfsa": [{"gfsa_order": 7, "gfsa_identity": 0.3}],
    "contranorm": [{"contranorm_similarity": "dot", "contranorm_scale": 0.5, "contranorm_temperature": 2.0}],
    "neutreno": [{"neutreno_lambda": 0.6}],
    "sigmoid": [{"sigmoid_length": 9}],
    "softmax_scaled": [{"scaled_by": "head"}],
    "gated": [{"gate_granularity": "headwise"}],
}
CASES = [(name, {}) for name in names()] + [(name, options) for name in VARIANTS for options in VARIANTS[name]]


def case_id(case):
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


every_case = pytest.mark.parametrize("case", CASES, ids=case_id)
every_name = pytest.mark.parametrize("case", [(name, {}) for name in names()], ids=case_id)


@dataclasses.dataclass
class Inputs:
    """What a call needs; ``v_first`` stands for the values of the stack's first layer."""

    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    v_first: Tensor

    def tensors(self) -> dict[str, Tensor]:
        return vars(self)

    def map(self, function) -> "Inputs":
        return Inputs(**{name: function(tensor) for name, tensor in vars(self).items()})


def inputs(target=5, source=None, batch=3, seed=0, dtype=torch.float64) -> Inputs:
    source = target if source is None else source
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    k, v, v_first = (draw(batch, HEADS, source, HEAD_DIM) for _ in range(3))
    return Inputs(draw(batch, HEADS, target, HEAD_DIM), k, v, draw(batch, target, EMBED), v_first)


class Called:
    """A mechanism in the middle of a stack; the layer before it runs first where that is needed."""

    def __init__(self, case, role="decoder", dropout=0.0, dtype=torch.float64, seed=1) -> None:
        name, options = case
        self.name = name
        torch.manual_seed(seed)
        stack = StackMemory()
        sites = [Site(EMBED, HEADS, role, layer, 3, dropout) for layer in (0, LAYER)]
        self.first, self.mechanism = (build(name, site, options).to(dtype).eval() for site in sites)
        for mechanism in (self.first, self.mechanism):
            mechanism.stack = stack
            with torch.no_grad():
                for parameter in mechanism.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
        self.options = options_of(name, options)

    def __call__(self, given: Inputs, *, need_weights=False, state=None, **masks):
        if self.mechanism.needs_every_layer:
            self.first(given.q, given.k, given.v_first, query_input=given.x, **masks)
        output, weights = self.mechanism(
            given.q, given.k, given.v, query_input=given.x, need_weights=need_weights, state=state, **masks
        )
        return self.mechanism.after_heads(parts.merge_heads(output)), weights


def stands_across(name: str) -> bool:
    """Whether the mechanism is used in cross attention."""
    return mechanism_class(name).facts.cross


def independent_call(called: Called, given: Inputs, padding=None, causal=False, hidden=None):
    """The same by the numpy formulas, as float64 arrays: the concatenated heads' output and the weights.

    ``hidden`` ``[target, source]``: which keys an ``attn_mask`` hides.
    """
    m = called.mechanism
    q, k, v, x, v_first = (tensor.detach().double().numpy() for tensor in given.tensors().values())
    see = independent.who_sees_what(q.shape[0], q.shape[2], k.shape[2], padding, causal)
    if hidden is not None:
        see = see & ~hidden.numpy()
    parameters = {name.replace(".", "_"): p.detach().double().numpy() for name, p in m.named_parameters()}
    known = {"x": x, "v_first": v_first, "layer": LAYER} | vars(called.options) | parameters
    formula = getattr(independent, called.name)
    own = [name for name in inspect.signature(formula).parameters if name not in ("q", "k", "v", "see")]
    output, weights = formula(q, k, v, see, **{name: known[name] for name in own if name in known})
    return parts.merge_heads(torch.from_numpy(output)), torch.from_numpy(weights)
