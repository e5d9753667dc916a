"""Puts a mechanism into a stock fairseq transformer, and tells which attention a built model really has."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpam_fairseq.attention import GPAMMultiheadAttention

import torch
from fairseq.modules import LayerDropModuleList, MultiheadAttention
from torch import nn

from gpam.attention import Site, build, mechanism_class, options_of
from gpam.attention.base import places
from gpam.attention.functional import checked_backend
from gpam.attention.site import Role
from gpam.errors import UsageError

NO_ATTENTION = "none"
"""In place of a mechanism's name: the network has no attention at all (a recurrent one, for comparison)."""


def install_attention(model: nn.Module, attention: str, options: Mapping[str, Any], backend: str = "auto") -> nn.Module:
    """Replace every attention module of ``model`` by the mechanism ``attention``, in place, computed by ``backend``.

    The new modules take over the projections, and building them leaves torch's random state as it was: under one
    seed all mechanisms start from the same shared parameters, those of stock fairseq.
    """
    checked = options_of(attention, options)
    checked_backend(backend)
    _check_every_layer(model, attention)
    found = list(_stock_attention(model))
    if not found:
        raise UsageError(f"{type(model).__name__} has no attention module of stock fairseq to replace by '{attention}'")
    with torch.random.fork_rng(devices=[]):
        for (parent, name, module, role), place in zip(found, places([role for *_, role in found]), strict=True):
            dropout = module.dropout_module.p
            site = Site(module.embed_dim, module.num_heads, role, place.layer, place.layers, dropout)
            installed = GPAMMultiheadAttention(module, build(attention, site, checked))
            installed.mechanism.stack = place.stack
            installed.mechanism.backend = backend
            setattr(parent, name, installed)
            if installed.acts_after_block:
                _layer_norm_behind(parent).register_forward_pre_hook(installed.after_block)
    return model


def _check_every_layer(model: nn.Module, attention: str) -> None:
    """A mechanism that hands values from layer to layer needs every layer to run, once and in order."""
    if not mechanism_class(attention).needs_every_layer:
        return
    for module in model.modules():
        if isinstance(module, LayerDropModuleList) and module.p > 0:
            raise UsageError(
                f"attention '{attention}' hands values from layer to layer: got layerdrop {module.p}, wanted 0"
            )
        if hasattr(module, "precheckpoint_forward"):
            raise UsageError(
                f"attention '{attention}' hands values from layer to layer, so none can be computed again by itself: "
                "got checkpoint_activations, wanted it off"
            )


def _layer_norm_behind(layer: nn.Module) -> nn.Module:
    """The layer norm that reads the sum of ``layer``'s self-attention output and its residual."""
    if not layer.normalize_before:
        return layer.self_attn_layer_norm
    return getattr(layer, "encoder_attn_layer_norm", None) or layer.final_layer_norm


def _stock_attention(model: nn.Module) -> Iterator[tuple[nn.Module, str, MultiheadAttention, Role]]:
    for path, parent in model.named_modules():
        for name, child in parent.named_children():
            if type(child) is MultiheadAttention:
                if child.encoder_decoder_attention:
                    role: Role = "cross"
                else:
                    role = "encoder" if path.startswith("encoder.") else "decoder"
                yield parent, name, child, role


def attention_classes(model: nn.Module) -> dict[str, str]:
    """Module path to class name of the attention that runs there: the mechanism's, or a stock module's own."""
    return {
        path: type(getattr(module, "mechanism", module)).__name__
        for path, module in model.named_modules()
        if isinstance(module, MultiheadAttention)
    }


def check_attention(model: nn.Module, attention: str, options: Mapping[str, Any]) -> None:
    """Make sure that the attention of ``model`` is what ``attention`` and ``options`` ask for.

    Raises:
        UsageError: there is no attention, or some module is another class, or has other options, than the
            configuration says, or none is of the class that it names.
    """
    classes = attention_classes(model)
    if attention == NO_ATTENTION and not classes and not options:
        return
    wanted, checked = mechanism_class(attention), options_of(attention, options)
    if not classes:
        raise UsageError(f"the configuration says attention '{attention}', but {type(model).__name__} has no attention")
    for path, module in model.named_modules():
        if not isinstance(module, MultiheadAttention):
            continue
        mechanism = getattr(module, "mechanism", None)
        expected = (
            wanted if mechanism is None or wanted.used_at(mechanism.site, checked) else mechanism_class("softmax")
        )
        if type(mechanism) is not expected or (expected is wanted and mechanism.options != checked):
            raise UsageError(
                f"the configuration says attention '{attention}' with {checked}, but {path} is "
                f"{type(mechanism or module).__name__} with {getattr(mechanism, 'options', None)}; "
                "the run does not start (was the checkpoint made with another model?)"
            )
    if wanted.__name__ not in classes.values():
        raise UsageError(
            f"the configuration says attention '{attention}' with {checked}, but {type(model).__name__} has a place "
            "for it nowhere and would be a model of softmax; choose options by which it stands somewhere"
        )
