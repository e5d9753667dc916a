"""A look into a model while it reads a text: what goes into and comes out of every layer and every attention."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import gpam_fairseq  # noqa: F401
from gpam_fairseq.attention import GPAMMultiheadAttention

import torch
from torch import Tensor, nn

from gpam.attention import Mechanism

ALL, PART, NONE = "all", "part", "none"
"""Whether attention weights are all that a mechanism does, a part of it, or not to be had."""


@dataclasses.dataclass
class Seen:
    """One attention module reading one text. ``inputs`` ``[target, width]`` is what the queries are made from,
    ``output`` ``[target, width]`` what leaves the output projection; ``q``, ``k``, ``v`` are ``[heads, length,
    head_dim]``, ``heads`` ``[heads, target, head_dim]`` is what the mechanism makes of them, and ``weights``
    ``[heads, target, source]``."""

    module: GPAMMultiheadAttention
    inputs: Tensor
    output: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    heads: Tensor
    weights: Tensor | None
    causal: bool

    @property
    def shown(self) -> str:
        """``all``: what leaves the heads is ``P V`` and nothing acts behind it; ``part``; ``none``: no weights."""
        mechanism = type(self.module.mechanism)
        if self.weights is None:
            return NONE
        if mechanism.after_heads is not Mechanism.after_heads or mechanism.after_block is not Mechanism.after_block:
            return PART
        if self.weights.shape[0] != self.v.shape[0]:
            return PART
        return ALL if torch.allclose(self.weights @ self.v, self.heads, atol=1e-4, rtol=1e-3) else PART

    @property
    def visible(self) -> Tensor:
        """``[target, source]``: what a row may look at."""
        ones = torch.ones(self.q.shape[1], self.k.shape[1], dtype=torch.bool)
        return ones.tril() if self.causal else ones


@dataclasses.dataclass
class Observation:
    """``streams``: stack (``encoder``, ``decoder``) to the tokens ``[tokens, width]`` before the first and behind each
    layer; ``attention``: module path to what was seen there."""

    streams: dict[str, list[Tensor]]
    attention: dict[str, Seen]


@contextlib.contextmanager
def watching(model: nn.Module) -> Iterator[Observation]:
    """Fills the observation with the forward pass made inside; one text at a time (a batch of one)."""
    seen: dict[str, dict[str, Any]] = {}
    found = Observation({}, {})
    hooks = []
    for path, module in model.named_modules():
        if isinstance(module, GPAMMultiheadAttention):
            own = seen.setdefault(path, {"module": module})
            hooks.append(module.mechanism.register_forward_pre_hook(_ask_for_weights, with_kwargs=True))
            hooks.append(module.mechanism.register_forward_hook(_keep_heads(own), with_kwargs=True))
            hooks.append(module.register_forward_hook(_keep_tokens(own), with_kwargs=True))
        elif path.rpartition(".")[0] in ("encoder.layers", "decoder.layers"):
            stream = found.streams.setdefault(path.partition(".")[0], [])
            hooks.append(module.register_forward_hook(_keep_stream(stream), with_kwargs=True))
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()
    found.attention.update({path: Seen(**own) for path, own in seen.items()})


def _ask_for_weights(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    return args, {**kwargs, "need_weights": True}


def _keep_heads(own: dict[str, Any]) -> Any:
    def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any], result: tuple[Tensor, Any]) -> None:
        (own["q"], own["k"], own["v"]), (own["heads"], weights) = (
            (x[0].detach() for x in args),
            (
                result[0].detach()[0],
                result[1],
            ),
        )
        own["weights"] = None if weights is None else weights[0].detach()
        own["causal"] = bool(kwargs.get("causal"))

    return hook


def _keep_tokens(own: dict[str, Any]) -> Any:
    def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any], result: tuple[Tensor, Any]) -> None:
        query = args[0] if args else kwargs["query"]
        own["inputs"], own["output"] = query[:, 0].detach(), result[0][:, 0].detach()

    return hook


def _keep_stream(stream: list[Tensor]) -> Any:
    def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any], result: Any) -> None:
        if not stream:
            stream.append((args[0] if args else kwargs["x"])[:, 0].detach())
        stream.append((result[0] if isinstance(result, tuple) else result)[:, 0].detach())

    return hook
