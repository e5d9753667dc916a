"""Checks of single options, with the sentence that a wrong one gets."""

from collections.abc import Iterable
from typing import Any

from gpam.errors import UsageError, did_you_mean


def one_of(value: Any, choices: Iterable[str], what: str) -> str:
    """``value`` if it is one of ``choices``; ``what`` is the option's name."""
    if value not in choices:
        raise UsageError(f"{what}: got {value!r}, wanted one of {', '.join(choices)}{did_you_mean(value, choices)}")
    return value


def whole_number(value: Any, least: int, what: str) -> int:
    """``value`` if it is an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{what}: got {value!r}, wanted a whole number of at least {least}")
    return value
