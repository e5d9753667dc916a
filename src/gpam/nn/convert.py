"""Another mechanism in a model that is there: its attention modules exchanged in place, their weights kept."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from gpam.attention import options_of
from gpam.attention.base import places, stacks_of
from gpam.attention.site import Role
from gpam.errors import UsageError
from gpam.nn import hugging_face
from gpam.nn.multihead import MultiheadAttention, refuse_what_acts_behind_the_block

_PROJECTIONS = {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias"}
"""Parameters of torch's module, some of them None."""
_MADE_HERE = "_gpam_in_place_of_torchs"
"""Set on modules of ours that stand where torch's was."""


@dataclasses.dataclass(frozen=True)
class Conversion:
    """What :func:`convert` did: module path to what stands there now, and path to the reason why it was left."""

    replaced: dict[str, str]
    left: dict[str, str]

    def __str__(self) -> str:
        lines = [f"{path}: {now}" for path, now in self.replaced.items()]
        return "\n".join(lines + [f"{path}: left, {why}" for path, why in self.left.items()])


def convert(model: nn.Module, mechanism: str, **options: Any) -> Conversion:
    """Put ``mechanism`` into every attention module of ``model`` that this function knows, in place.

    Known are ``torch.nn.MultiheadAttention`` (by itself and in ``nn.Transformer``'s layers) and every model of Hugging
    Face's transformers that computes attention through its attention interface (GPT-2, BERT, ViT, Llama and others).
    Weights and the hooks of passes are kept, and a module that stands in several places stays one; what the mechanism
    learns beside them starts as its options say. daGPAM with both lambdas 0 gives the old model's output.
    ``convert(model, "softmax")`` puts back torch's module where ``convert`` took it away, with the weights of now; an
    attention module of ours that was there before gets softmax.

    A decoder's self attention, and its attention to an encoder, are told by torch's layers and transformers' names; any
    other torch module is taken for cross attention where its name says so (``cross_attn``) or its widths differ, else
    for an encoder's.

    An optimiser made before knows nothing of new parameters: make it afterwards.

    Args:
        model: any module that holds attention modules; it may not be an attention module itself.
        mechanism: a name of ``gpam.attention.names()``.
        options: the mechanism's own, such as ``lambda_pos=0.2`` or ``lambdas="trainable"``.

    Returns:
        Which modules were replaced and which were left, and why; ``print`` it.

    Raises:
        UsageError: no attention module is known, an unknown mechanism or option, or a mechanism that cannot stand in
            such a model. The model is then as it was.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"got a {type(model).__name__} for a model, wanted a torch.nn.Module")
    if isinstance(model, nn.MultiheadAttention):
        raise UsageError(
            f"got a {type(model).__name__} for a model, wanted the module that holds it, in which it is exchanged; by "
            "itself build gpam.nn.MultiheadAttention"
        )
    checked = options_of(mechanism, options)
    found = list(_torch_modules(model))
    known = [entry for entry in found if entry.why_left is None]
    pretrained = hugging_face.attentions(model)
    if not known and not pretrained.known:
        others = {entry.path: entry.why_left for entry in found} | pretrained.left
        reasons = "".join(f"; {path}: {why}" for path, why in others.items())
        raise UsageError(
            f"{type(model).__name__} has no attention module that can be converted{reasons}: wanted "
            "torch.nn.MultiheadAttention inside it, or a model of transformers that uses its attention interface"
        )
    refuse_what_acts_behind_the_block(mechanism)
    # Everything that can be refused is built before anything is exchanged.
    hugging, back = pretrained.built(mechanism, checked), mechanism == "softmax"
    exchanges = _built(known, mechanism, dataclasses.asdict(checked))
    for entry, module in exchanges:
        setattr(entry.parent, entry.name, module)
    _mind_nested_tensors(model)
    replaced = {entry.path: _name_of(module) for entry, module in exchanges} | pretrained.install(hugging, back=back)
    return Conversion(replaced, {entry.path: entry.why_left for entry in found if entry.why_left} | pretrained.left)


@dataclasses.dataclass(frozen=True)
class _Found:
    path: str
    parent: nn.Module
    name: str
    module: nn.MultiheadAttention
    role: Role
    why_left: str | None


def _torch_modules(model: nn.Module) -> Iterator[_Found]:
    for path, parent in model.named_modules():
        for name, child in parent._modules.items():  # one that stands in several places at each of them
            if isinstance(child, nn.MultiheadAttention):
                if isinstance(child, MultiheadAttention):
                    role: Role = child.mechanism.site.role
                elif isinstance(parent, nn.TransformerDecoderLayer):
                    role = "cross" if name == "multihead_attn" else "decoder"
                else:
                    own = child.embed_dim == child.kdim == child.vdim and not hugging_face.is_cross(name)
                    role = "encoder" if own else "cross"
                yield _Found(f"{path}.{name}".lstrip("."), parent, name, child, role, _why_left(child))


def _why_left(module: nn.MultiheadAttention) -> str | None:
    if type(module) not in (nn.MultiheadAttention, MultiheadAttention):
        return f"{type(module).__name__} is a subclass whose ways are not known"
    if module.bias_k is not None or module.add_zero_attn:
        return "it has add_bias_kv or add_zero_attn"
    if not module._parameters.keys() >= _PROJECTIONS or type(module.out_proj) is not NonDynamicallyQuantizableLinear:
        return "its projections are not torch's own (pruned, normalised or exchanged)"
    return None


def _built(known: list[_Found], mechanism: str, options: dict[str, Any]) -> list[tuple[_Found, nn.Module]]:
    """The new module for each, one where it was one, weights taken over; torch's random state is left as it was."""
    modules: dict[nn.MultiheadAttention, tuple[Role, str]] = {}
    for entry in known:
        modules.setdefault(entry.module, (entry.role, entry.path))
    made: dict[nn.Module, nn.Module] = {}
    devices = {entry.module.out_proj.weight.device for entry in known}
    with torch.random.fork_rng(devices=[device for device in devices if device.type == "cuda"]):
        for (old, (role, _)), place in zip(modules.items(), places(stacks_of([*modules.values()])), strict=True):
            shape = {
                "dropout": old.dropout,
                "bias": old.in_proj_bias is not None,
                "batch_first": old.batch_first,
                "kdim": old.kdim,
                "vdim": old.vdim,
                "device": old.out_proj.weight.device,
                "dtype": old.out_proj.weight.dtype,
            }
            torchs = not isinstance(old, MultiheadAttention) or hasattr(old, _MADE_HERE)
            if mechanism == "softmax" and torchs:
                new: nn.MultiheadAttention = nn.MultiheadAttention(old.embed_dim, old.num_heads, **shape)
            else:
                where = {"role": role, "layer": place.layer, "layers": place.layers}
                new = MultiheadAttention(old.embed_dim, old.num_heads, mechanism, **shape, **where, **options)
                new.mechanism.stack = place.stack
                if torchs:
                    setattr(new, _MADE_HERE, True)
            for name in _PROJECTIONS:
                setattr(new, name, getattr(old, name))
            new.out_proj = old.out_proj
            # Hooks stay, and their handles remove them as before: the same dictionaries.
            hooks = {name: held for name, held in vars(old).items() if name.startswith(("_forward_", "_backward_"))}
            vars(new).update(hooks, _is_full_backward_hook=old._is_full_backward_hook)
            made[old] = new.train(old.training)
    return [(entry, made[entry.module]) for entry in known]


def _mind_nested_tensors(model: nn.Module) -> None:
    """torch's encoder may hand its layers nested tensors in evaluation, which its own softmax alone can read."""
    for encoder in model.modules():
        if isinstance(encoder, nn.TransformerEncoder):
            own = any(isinstance(module, MultiheadAttention) for module in encoder.modules())
            if not hasattr(encoder, "_gpam_nested_before"):
                encoder._gpam_nested_before = encoder.use_nested_tensor
            encoder.use_nested_tensor = encoder._gpam_nested_before and not own


def _name_of(module: nn.Module) -> str:
    return type(module.mechanism).__name__ if isinstance(module, MultiheadAttention) else "torch.nn.MultiheadAttention"
