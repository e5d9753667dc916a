"""A look into a model while it reads a text: what goes into and comes out of every layer and every attention."""

import contextlib
import dataclasses
from functools import partial
from typing import Any

import gpam_fairseq  # noqa: F401
from gpam_fairseq.attention import GPAMMultiheadAttention

import torch
from torch import Tensor, nn


@dataclasses.dataclass
class Seen:
    """One attention module reading one text. ``inputs`` ``[target, width]`` is what the queries are made from; ``q``,
    ``k``, ``v`` are ``[heads, length, head_dim]``, ``weights`` ``[heads, target, source]``."""

    module: GPAMMultiheadAttention
    inputs: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    weights: Tensor
    causal: bool

    @property
    def role(self) -> str:
        """Where the module stands: ``encoder``, ``decoder`` or ``cross``."""
        return self.module.mechanism.site.role

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


@torch.no_grad()
def observed(model: nn.Module, arguments: dict[str, Tensor]) -> Observation:
    """What is seen in a forward pass of ``model`` with ``arguments``, which are of one text (a batch of one)."""
    attention: dict[str, dict[str, Any]] = {}
    streams: dict[str, list[Tensor]] = {}
    with contextlib.ExitStack() as hooks:
        hold = hooks.enter_context
        for path, module in model.named_modules():
            stack, _, place = path.partition(".layers.")
            if isinstance(module, GPAMMultiheadAttention):
                own = attention[path] = {"module": module}
                hold(module.mechanism.register_forward_pre_hook(ask_for_weights, with_kwargs=True))
                hold(module.mechanism.register_forward_hook(partial(_keep_weights, own), with_kwargs=True))
                hold(module.register_forward_pre_hook(partial(_keep_tokens, own), with_kwargs=True))
            elif stack in ("encoder", "decoder") and place.isdecimal():
                stream = streams.setdefault(stack, [])
                hold(module.register_forward_hook(partial(_keep_stream, stream), with_kwargs=True))
        model(**arguments)
    return Observation(streams, {path: Seen(**own) for path, own in attention.items()})


def ask_for_weights(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """A hook before the forward pass of a mechanism, which then gives its weights as well."""
    return args, {**kwargs, "need_weights": True}


def _keep_weights(own: dict[str, Any], _: nn.Module, args: Any, kwargs: dict[str, Any], result: Any) -> None:
    own["q"], own["k"], own["v"], own["weights"] = (x[0] for x in (*args, result[1]))
    own["causal"] = bool(kwargs.get("causal"))


def _keep_tokens(own: dict[str, Any], _: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    own["inputs"] = (args[0] if args else kwargs["query"])[:, 0]


def _keep_stream(stream: list[Tensor], _: nn.Module, args: Any, kwargs: dict[str, Any], result: Any) -> None:
    if not stream:
        stream.append((args[0] if args else kwargs["x"])[:, 0])
    stream.append((result[0] if isinstance(result, tuple) else result)[:, 0])
