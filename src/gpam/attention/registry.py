"""The mechanisms by name. A new one is a file in ``mechanisms`` that calls :func:`register`, and a configuration."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from gpam.attention.base import Mechanism
from gpam.attention.options import make_options
from gpam.attention.site import Site
from gpam.errors import UsageError, did_you_mean

_MECHANISMS: dict[str, type[Mechanism]] = {}
ARGUMENTS = {"model", "mechanism", "embed_dim", "num_heads", "dropout", "bias", "batch_first", "kdim", "vdim"}
ARGUMENTS |= {"role", "layer", "layers", "device", "dtype", "name", "label", "attention", "control"}
"""What :mod:`gpam.nn` takes, and a model's configuration has, beside a mechanism's options: an option of such a name
would never reach it."""


def register(name: str) -> Callable[[type[Mechanism]], type[Mechanism]]:
    """Class decorator: makes a mechanism known as ``name``.

    Options share one command line, so an option name that two mechanisms use must have one type and default.

    Raises:
        ValueError: a name that is taken, no facts, a field of ``Options`` that :func:`gpam.attention.options.option`
            did not make, one that has one of the :data:`ARGUMENTS`' names, or that differs from another mechanism's.
    """

    def add(mechanism: type[Mechanism]) -> type[Mechanism]:
        if name in _MECHANISMS:
            raise ValueError(f"attention '{name}' is registered twice")
        if not hasattr(mechanism, "facts"):
            raise ValueError(f"attention '{name}' has no facts: wanted facts = Facts(...) in its class")
        if plain := [own.name for own in dataclasses.fields(mechanism.Options) if "help" not in own.metadata]:
            raise ValueError(f"option '{plain[0]}' of attention '{name}': wanted option(default, help) as its value")
        if taken := [own.name for own in dataclasses.fields(mechanism.Options) if own.name in ARGUMENTS]:
            raise ValueError(f"option '{taken[0]}' of attention '{name}' has a name that is not free: name it apart")
        own = {field.name: (field.default, field.metadata) for field in dataclasses.fields(mechanism.Options)}
        for other in _MECHANISMS.values():
            for field in dataclasses.fields(other.Options):
                if own.get(field.name, (field.default, field.metadata)) != (field.default, field.metadata):
                    raise ValueError(
                        f"option '{field.name}' of attention '{name}' differs from that of attention '{other.name}'"
                    )
        _MECHANISMS[name], mechanism.name = mechanism, name
        return mechanism

    return add


def names() -> list[str]:
    """Every registered name, softmax and daGPAM first."""
    first = ["softmax", "dagpam"]
    return first + sorted(set(_MECHANISMS) - set(first))


def mechanism_class(name: str) -> type[Mechanism]:
    """The class registered as ``name``; UsageError with the nearest name where there is none."""
    if name not in _MECHANISMS:
        raise UsageError(
            f"unknown attention '{name}'{did_you_mean(name, _MECHANISMS)} (wanted one of {', '.join(names())})"
        )
    return _MECHANISMS[name]


def all_options() -> dict[str, dataclasses.Field]:
    """Every option of every mechanism, by name."""
    return {field.name: field for mechanism in _MECHANISMS.values() for field in dataclasses.fields(mechanism.Options)}


def options_of(name: str, values: Mapping[str, Any] | None = None) -> Any:
    """The checked options of ``name``: its defaults, and ``values`` over them."""
    values = {} if values is None else values
    if not isinstance(values, Mapping):
        raise UsageError(f"options of '{name}': got {values!r}, wanted a mapping of their names to values")
    return make_options(name, mechanism_class(name).Options, values)


def build(name: str, site: Site, options: Any = None) -> Mechanism:
    """The mechanism ``name`` for ``site``, or softmax where that mechanism is not used there.

    ``options`` is a mapping of option values or the checked options of :func:`options_of`.
    """
    mechanism = mechanism_class(name)
    if not isinstance(options, mechanism.Options):
        options = options_of(name, options)
    if not mechanism.used_at(site, options):
        return build("softmax", site)
    return mechanism(site, options)


def load_all() -> None:
    """Import every module of ``mechanisms``, so that each registers what it holds."""
    package = importlib.import_module("gpam.attention.mechanisms")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
