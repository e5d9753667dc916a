"""JSON that holds its own SHA-256, so that a reader knows whether it is what was written."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from gpam_suite.common import strict_json

KEY = "sha256"


def summed(value: Mapping[str, Any], indent: int | None = None) -> str:
    """``value`` as a text of JSON with the checksum of the rest under ``sha256``."""
    return json.dumps({**value, KEY: _sum(value)}, indent=indent, ensure_ascii=False) + "\n"


def read_summed(text: str) -> dict[str, Any]:
    """What :func:`summed` wrote, without the checksum.

    Raises:
        ValueError: it is something else.
    """
    value = strict_json.loads(text)
    return checked(value if isinstance(value, dict) else {})


def checked(value: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`summed` wrote as it was read, without the checksum.

    Raises:
        ValueError: it is something else.
    """
    if KEY not in value:
        raise ValueError("it has no checksum of its own, as an earlier version wrote it")
    rest = {name: of for name, of in value.items() if name != KEY}
    if value[KEY] != _sum(rest):
        raise ValueError("its checksum is not the one it was written with")
    return rest


def _sum(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
