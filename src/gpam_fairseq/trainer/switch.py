"""Whether the fast step is wanted: option ``gpu.fast``, and the environment variable ``GPAM_FAST`` for its default."""

import os
from typing import Any

from gpam.errors import UsageError

VARIABLE = "GPAM_FAST"
_WORDS = {"true": True, "1": True, "false": False, "0": False}


def read(value: Any, name: str) -> bool:
    """``value`` of ``name`` as a truth value.

    Raises:
        UsageError: it is neither true (1) nor false (0).
    """
    word = str(value).lower()
    if word not in _WORDS:
        raise UsageError(f"{name}: got '{value}', wanted true or false")
    return _WORDS[word]


def wanted() -> bool:
    """What ``GPAM_FAST`` says; true where it is not set."""
    return read(os.environ.get(VARIABLE, "1"), VARIABLE)
