"""Options of a mechanism: a frozen dataclass whose fields say what they accept, and the check of a user's values.

An option is declared once, with :func:`option`; the registry, fairseq's command line and the Hydra configuration
all read it from there.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from gpam.errors import UsageError, did_you_mean


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """For a mechanism that has none."""


def option(default: Any, help: str, *, choices: tuple[str, ...] | None = None, minimum: float | None = None) -> Any:
    """A field of a mechanism's options: its default, one sentence of help, and what it accepts.

    Raises:
        TypeError: a default that is neither a number nor one of ``choices``.
    """
    if default not in choices if choices else isinstance(default, bool) or not isinstance(default, int | float):
        raise TypeError(f"an option's default: got {default!r}, wanted a number, or one of choices=(...)")
    return dataclasses.field(default=default, metadata={"help": help, "choices": choices, "minimum": minimum})


def make_options(mechanism: str, options_class: type, values: Mapping[str, Any]) -> Any:
    """``options_class(**values)`` with each value checked; numbers may come as text.

    Raises:
        UsageError: an unknown option, a value of the wrong type, not finite, out of range or not among the choices.
    """
    fields = {field.name: field for field in dataclasses.fields(options_class)}
    for name in values:
        if name not in fields:
            wanted = f"its options are {', '.join(fields)}" if fields else "it has no options"
            raise UsageError(f"attention '{mechanism}' has no option '{name}'{did_you_mean(name, fields)} ({wanted})")
    return options_class(**{name: _checked(mechanism, fields[name], value) for name, value in values.items()})


def _checked(mechanism: str, field: dataclasses.Field, value: Any) -> Any:
    where = f"option '{field.name}' of attention '{mechanism}'"
    choices, minimum = field.metadata["choices"], field.metadata["minimum"]
    if choices is not None:
        if str(value) not in choices:
            wanted = ", ".join(choices)
            raise UsageError(f"{where}: got '{value}', wanted one of {wanted}{did_you_mean(value, choices)}")
        return str(value)
    kind = type(field.default)
    if getattr(value, "requires_grad", False):
        raise UsageError(f"{where}: got a tensor that requires a gradient and would lose it, wanted a number")
    try:
        number = kind(value) if not isinstance(value, bool) else math.nan
        fits = math.isfinite(number) and (kind is float or number == float(value))
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        wanted = "a whole number" if kind is int else "a finite number"
        raise UsageError(f"{where}: got '{value}', wanted {wanted}, for instance {field.default}")
    if minimum is not None and number < minimum:
        raise UsageError(f"{where}: got {value}, wanted at least {minimum}")
    return number
