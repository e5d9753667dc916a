"""Checks of single options, with the sentence that a wrong one gets."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpam.errors import UsageError, did_you_mean


def one_of(value: Any, choices: Iterable[str], what: str) -> str:
    """``value`` if it is one of ``choices``; ``what`` is the option's name."""
    choices = list(choices)  # of a mapping the names, among which a list may be looked for
    if value not in choices:
        raise UsageError(f"{what}: got {value!r}, wanted one of {', '.join(choices)}{did_you_mean(value, choices)}")
    return value


def whole_number(value: Any, least: int, what: str) -> int:
    """``value`` if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what}: got {value!r}, wanted a whole number of at least {least}")
    return value


def finite(value: Any, what: str) -> float:
    """``value`` if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{what}: got {value!r}, wanted a number")
    return value


def positive(value: Any, what: str) -> float:
    """``value`` if it is a finite number above zero."""
    if finite(value, what) <= 0:
        raise UsageError(f"{what}: got {value!r}, wanted a number above zero")
    return value


def yes_or_no(value: Any, what: str) -> bool:
    """``value`` if it is true or false."""
    if not isinstance(value, bool):
        raise UsageError(f"{what}: got {value!r}, wanted true or false")
    return value


def nonempty(value: Any, what: str) -> str:
    """``value`` if it is a text that can name a file."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise UsageError(f"{what}: got '{value}', wanted a text")
    return value


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """``value`` if it is a mapping of options."""
    if not isinstance(value, Mapping):
        raise UsageError(f"{what}: got {value!r}, wanted a mapping of options")
    return value


def several(value: Any, what: str) -> list[Any]:
    """The members of ``value`` if it is a list."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UsageError(f"{what}: got {value!r}, wanted a list, as in {what}=[{value}]")
    return list(value)
