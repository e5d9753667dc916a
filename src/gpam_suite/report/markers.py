"""Hand-written pages with generated parts: whatever stands between two markers is filled in, never typed.

<!-- table: NAME -->            <!-- figure: NAME -->
...                             ...
<!-- end -->                    <!-- end -->
"""

import re
from collections.abc import Mapping
from pathlib import Path

from gpam.errors import UsageError, did_you_mean

_PART = re.compile(r"(<!-- (table|figure): ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_CODE = re.compile(r"```.*?```|`[^`]*`|^ {4}[^\n]*", re.DOTALL | re.MULTILINE)
_TARGET = re.compile(r"\]\([^)]*\)|https?://\S+|arXiv \S+|<!--.*?-->", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])(?<!\w-)\d[\d,]*(?:\.\d+)?(?![\w])")


def filled(text: str, parts: Mapping[str, str], page: Path) -> str:
    """``text`` of ``page`` with each marked part replaced by ``parts[NAME]``.

    Raises:
        UsageError: the page asks for a part that there is not.
    """

    def part(match: re.Match[str]) -> str:
        if (name := match[3]) not in parts:
            raise UsageError(f"{page} asks for the {match[2]} '{name}'{did_you_mean(name, parts)}, there is none.")
        return f"{match[1]}\n{parts[name]}\n{match[4]}"

    return _PART.sub(part, text)


def generated(text: str) -> str:
    """What stands between the markers."""
    return "\n".join(match[0].removeprefix(match[1]) for match in _PART.finditer(text))


def by_hand(text: str) -> str:
    """What a person wrote: the text without generated parts, code, and the targets of links."""
    return _TARGET.sub(" ", _CODE.sub(" ", _PART.sub(" ", text)))


def numbers(text: str) -> list[str]:
    """The numbers in a text, as they are written; those that are part of a word (F1, Multi30k, WikiText-103) are
    none."""
    return _NUMBER.findall(text)
