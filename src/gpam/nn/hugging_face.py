"""Models of Hugging Face's transformers: a mechanism behind their attention interface. transformers may be missing."""

import dataclasses
import functools
import inspect
import sys
from typing import Any

import torch
from torch import Tensor, nn

from gpam.attention import Site, build, mechanism_class
from gpam.attention.backends.masks import hidden_by
from gpam.attention.base import Mechanism, places, stacks_of
from gpam.attention.parts import merge_heads
from gpam.attention.site import Role
from gpam.errors import UsageError
from gpam.tracing import runs_as_called

_CHILD = "gpam"  # the name of the mechanism in its attention module, and of ours among transformers' implementations
_BEFORE = "_gpam_attention_before"


@dataclasses.dataclass(frozen=True)
class _Attention:
    path: str
    module: nn.Module
    heads: int
    head_dim: int
    role: Role


@dataclasses.dataclass
class Attentions:
    """The attention modules of transformers' models inside a model: those known, and why others are not."""

    models: list[nn.Module]
    known: list[_Attention]
    left: dict[str, str]

    def built(self, mechanism: str, options: Any) -> list[Mechanism]:
        """A mechanism for each known module; UsageError where it needs what the interface does not give."""
        if self.known and mechanism_class(mechanism).needs_query_input:
            raise UsageError(
                f"attention '{mechanism}' makes a map of the block's input, which transformers' attention interface "
                "does not pass on: it cannot be put into such a model"
            )
        mechanisms, stacks = [], stacks_of([(entry.role, entry.path) for entry in self.known])
        with torch.random.fork_rng(devices=[]):
            for entry, place in zip(self.known, places(stacks), strict=True):
                site = Site(entry.heads * entry.head_dim, entry.heads, entry.role, place.layer, place.layers)
                like = next(parameter for parameter in entry.module.parameters() if parameter.is_floating_point())
                new = build(mechanism, site, options).to(like.device, like.dtype).train(entry.module.training)
                new.stack = place.stack
                mechanisms.append(new)
        return mechanisms

    def install(self, built: list[Mechanism], *, back: bool) -> dict[str, str]:
        """Put in what was ``built``, or ``back`` what was there; module path to what stands there now."""
        for model in self.models:
            if not hasattr(model, _BEFORE):
                before = model.config._attn_implementation  # ours, where another model has the same configuration
                setattr(model, _BEFORE, "sdpa" if before == _CHILD else before)
            _set(model, getattr(model, _BEFORE) if back else register())
        for entry, mechanism in zip(self.known, built, strict=True):
            if not back:
                setattr(entry.module, _CHILD, mechanism)
            elif hasattr(entry.module, _CHILD):
                delattr(entry.module, _CHILD)
        now = [getattr(model, _BEFORE) for model in self.models]
        names = [f"transformers' {now[0]} attention" if back else type(new).__name__ for new in built]
        return {entry.path: name for entry, name in zip(self.known, names, strict=True)}


def _set(model: nn.Module, implementation: str) -> None:
    """transformers logs a warning and sets nothing in a model whose class's source it cannot read (of a notebook), or
    that stands in a file with attention of its own; what is known here asks its configuration all the same."""
    model.set_attn_implementation(implementation)
    if model.config._attn_implementation != implementation:
        model.config._attn_implementation = implementation


def attentions(model: nn.Module) -> Attentions:
    """The attention modules of transformers' models in ``model``; none where transformers was never imported."""
    found = Attentions([], [], {})
    if "transformers" not in sys.modules:
        return found
    from transformers import PreTrainedModel

    inside: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()
    for path, module in model.named_modules():
        if isinstance(module, PreTrainedModel) and not path.startswith(inside or "\0"):
            below = f"{path}." if path else ""
            inside += (below,)
            if all(one._supports_sdpa for one in module.modules() if isinstance(one, PreTrainedModel)):
                found.models.append(module)
            else:  # it reads other masks than sdpa's, which the interface gives a converted model
                strange += (below,)
        if path.startswith(inside or "\0") and _calls_the_interface(type(module)):
            if path.startswith(strange or "\0"):
                found.left[path] = "transformers knows no sdpa for its model, whose masks are others"
            else:
                _sort(path, module, found)
    return found


@functools.cache
def _calls_the_interface(kind: type[nn.Module]) -> bool:
    """Whether a class, or one that it is made from, computes attention by transformers' interface, which its source
    alone tells."""
    own = (base for base in kind.__mro__ if "forward" in vars(base) and not base.__module__.startswith("torch."))
    try:
        return any("ALL_ATTENTION_FUNCTIONS" in inspect.getsource(base.forward) for base in own)
    except (OSError, TypeError):
        return False


def _sort(path: str, module: nn.Module, found: Attentions) -> None:
    if not type(module).__module__.startswith("transformers."):
        found.left[path] = (
            f"{type(module).__name__} is a class that did not come with transformers: its ways are not known"
        )
        return
    if not any(parameter.is_floating_point() for parameter in module.parameters()):
        found.left[path] = "it has no floating-point parameter, as if quantised"
        return
    config = getattr(module, "config", None)
    heads = _first(module, "num_heads", "num_attention_heads", "n_heads") or _first(config, "num_attention_heads")
    head_dim = _first(module, "head_dim", "head_size", "attention_head_size", "key_value_proj_dim")
    if not heads or not head_dim:
        found.left[path] = f"{type(module).__name__} does not say how many heads it has, or how wide they are"
        return
    if getattr(config, "pad_head_dim_to_multiple_of", None):
        found.left[path] = "its heads are padded to another width than it says"
        return
    crosses = "Cross" in type(module).__name__ or any(map(is_cross, path.split(".")))
    if getattr(module, "is_cross_attention", False) or crosses:
        role: Role = "cross"
    else:
        role = "decoder" if getattr(module, "is_causal", False) else "encoder"
    found.known.append(_Attention(path, module, heads, head_dim, role))


def is_cross(name: str) -> bool:
    """Whether models call a decoder's attention to the encoder so, where neither its class nor it says so."""
    return name in ("encoder_attn", "x_attn", "EncDecAttention") or ("cross" in name and "att" in name)


def _first(holder: Any, *names: str) -> int | None:
    values = (getattr(holder, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def register() -> str:
    """Make :func:`attention` known to transformers, as a model that was pickled whole needs in a new process; returns
    its name there."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(_CHILD, attention)
    AttentionMaskInterface.register(_CHILD, sdpa_mask)
    return _CHILD


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """The contract of transformers' attention functions: ``[batch, heads, length, head_dim]`` in, keys and values with
    fewer heads where queries are grouped, ``[batch, length, heads, head_dim]`` out. ``attention_mask`` is true (or 0)
    where a key is seen."""
    mechanism: Mechanism | None = getattr(module, _CHILD, None)
    if mechanism is None:  # a module that convert left
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        given = {"scaling": scaling, "dropout": dropout, "is_causal": is_causal, "position_bias": position_bias}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **given, **others)
    if mechanism.site.role == "encoder" and not mechanism.facts.cross and query.shape[2] != key.shape[2]:
        raise UsageError(
            f"attention '{mechanism.name}' stands in self attention alone: got {query.shape[2]} queries for "
            f"{key.shape[2]} keys in a module that was taken for an encoder's"
        )
    for unknown in ("softcap", "s_aux", "cache"):
        if others.get(unknown) is not None:
            raise UsageError(f"attention with '{unknown}' is not supported in a converted model")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if scaling is not None:
        query = query * (scaling * query.shape[-1] ** 0.5)  # a mechanism divides by the root itself
    mechanism.set_dropout(dropout)
    causal = is_causal and attention_mask is None and query.shape[2] > 1
    cached = mechanism.site.role == "decoder" and key.shape[2] > query.shape[2]
    if causal:  # as in torch's sdpa, query i is at key i: keys behind the last are a static cache's empty places
        key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    elif cached and attention_mask is not None and not runs_as_called() and not mechanism.facts.cross:
        raise UsageError(
            f"attention '{mechanism.name}' takes the last keys for the targets' own, and while it is compiled it "
            "cannot tell how far a static cache is filled: generate with disable_compile=True, or with another cache"
        )
    elif cached and attention_mask is not None and runs_as_called():
        filled = _filled(attention_mask)  # a mechanism takes the last keys for the targets' own
        key, value = key[:, :, :filled], value[:, :, :filled]
    output, weights = mechanism(
        query,
        key,
        value,
        causal=causal,
        attn_mask=_mask(attention_mask, position_bias, key.shape[2]),
        need_weights=bool(others.get("output_attentions")),
    )
    if type(mechanism).after_heads is not Mechanism.after_heads:
        return mechanism.after_heads(merge_heads(output)).unflatten(-1, (query.shape[1], -1)), weights
    return output.transpose(1, 2).contiguous(), weights


def _filled(attention_mask: Tensor) -> int | None:
    """How many keys a cache has, up to the last that any target sees; None: all, where none is seen."""
    hidden = ~attention_mask if attention_mask.dtype == torch.bool else hidden_by(attention_mask)
    seen = (~hidden).flatten(0, -2).any(0).nonzero()
    return int(seen[-1]) + 1 if len(seen) else None


def _mask(attention_mask: Tensor | None, position_bias: Tensor | None, source: int) -> Tensor | None:
    """transformers' mask, of which true or 0 is seen, as a mechanism takes it: true is hidden, or floats to add."""
    position_bias = None if position_bias is None else position_bias[..., :source]  # a static cache has more keys
    if attention_mask is None:
        return position_bias
    attention_mask = attention_mask[..., :source]
    if attention_mask.dtype == torch.bool:
        hidden = ~attention_mask
        return hidden if position_bias is None else position_bias.masked_fill(hidden, float("-inf"))
    bias = attention_mask if position_bias is None else attention_mask + position_bias
    return bias.masked_fill(hidden_by(attention_mask), float("-inf"))
