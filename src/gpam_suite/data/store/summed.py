"""JSON that holds its own SHA-256, so that a reader knows whether it is what was written."""

import json
from collections.abc import Mapping
from typing import Any

from gpam_suite.common import strict_json
from gpam_suite.data.text.lines import sha256

_KEY = "sha256"


def summed(value: Mapping[str, Any], indent: int | None = None) -> str:
    """``value`` as a text of JSON with the checksum of the rest under ``sha256``."""
    return json.dumps({**value, _KEY: _sum(value)}, indent=indent, ensure_ascii=False) + "\n"


def read_summed(text: str) -> dict[str, Any]:
    """What :func:`summed` wrote, without the checksum.

    Raises:
        ValueError: it is something else.
    """
    value = strict_json.loads(text)
    if not isinstance(value, dict) or _KEY not in value:
        raise ValueError("it has no checksum of its own, as an earlier version wrote it")
    if value.pop(_KEY) != _sum(value):
        raise ValueError("its checksum is not the one it was written with")
    return value


def _sum(value: Mapping[str, Any]) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode())
