"""JSON as this suite writes it: no NaN or infinity, no number beyond :data:`LARGEST`, no half of a character, no key
twice; and with its own SHA-256, so that a reader knows whether it is what was written."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

KEY = "sha256"
"""Where a text of JSON holds the checksum of the rest."""
LARGEST = 1e100
"""The square of a number up to here, and the sum of many, are numbers too."""
_LARGEST_INT = 1 << 63
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: not JSON, not UTF-8, nested too deeply, or one of the things above; its text is one line.
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8")
        value = _STRICT.decode(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # refuses a half whose other half is missing
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _float(text: str) -> float:
    if abs(value := float(text)) > LARGEST:
        raise ValueError(f"{text[:20]} is larger than any number here")
    return value


def _int(text: str) -> int:
    if len(text) > 20 or abs(value := int(text)) > _LARGEST_INT:
        raise ValueError(f"{text[:20]} is larger than any number here")
    return value


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice!r} stands there twice")
    return found


_STRICT = json.JSONDecoder(
    parse_constant=_no_number, parse_float=_float, parse_int=_int, object_pairs_hook=_no_key_twice
)


def with_nulls(value: Any, digits: int = 17) -> Any:
    """``value`` as JSON has it, floats to so many significant ``digits`` (17 are all); what is NaN, infinite or beyond
    :data:`LARGEST` becomes None."""

    def rounded(text: str) -> float | None:
        return float(f"{number:.{digits}g}") if abs(number := float(text)) <= LARGEST else None

    return json.loads(json.dumps(value), parse_float=rounded, parse_constant=lambda _: None)


def summed(value: Mapping[str, Any], indent: int | None = None) -> str:
    """``value`` as a text of JSON with the checksum of the rest under ``sha256``."""
    return json.dumps({**value, KEY: _sum(value)}, indent=indent, ensure_ascii=False) + "\n"


def read_summed(text: str | bytes) -> dict[str, Any]:
    """What :func:`summed` wrote, without the checksum.

    Raises:
        ValueError: it is something else.
    """
    value = loads(text)
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
