"""Cells of text as a Markdown table."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from gpam_suite.common.formatting import MISSING

_NUMBER = re.compile(r"[-+<−]?\s?\d")
_CONTROLS = ("Cc", "Cs", "Zl", "Zp")
_TAG = re.compile("<(?=[A-Za-z/!?])")


def shown(text: str) -> str:
    """``text`` for a terminal or a file: what would act there (an escape, a bell, a carriage return, half a character)
    as the name that Python gives it; line feeds, tabs and spaces of all kinds stay."""

    def harmless(sign: str) -> bool:
        return sign.isprintable() or sign in "\n\t" or unicodedata.category(sign) == "Zs"

    return "".join(sign if harmless(sign) else ascii(sign)[1:-1] for sign in str(text))


def control(text: str) -> str | None:
    """The name of the first control character (a line feed, an escape) or half of a character in ``text``."""
    return next(
        (f"U+{ord(sign):04X}" for sign in text if unicodedata.category(sign) in _CONTROLS and sign != "\t"), None
    )


def inert(text: str) -> str:
    """``text`` of a record, a label or a command on one line of a Markdown page: no tag in it is one."""
    return _TAG.sub("&lt;", " ".join(shown(text).split()))


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown, each line :func:`inert`."""
    return "".join(f"- {inert(line)}\n" for line in lines)


def code(lines: Iterable[str]) -> str:
    """Commands as a block of Markdown, one a line, whatever is in them."""
    text = "".join(f"{' '.join(shown(line).split())}\n" for line in lines)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}sh\n{text}{fence}\n"


def markdown(head: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    """A Markdown table; columns of numbers are set to the right."""
    columns = [[line[place] for line in table if line[place] != MISSING] for place in range(len(head))]
    numbers = [2 * sum(_NUMBER.match(cell) is not None for cell in column) >= len(column) for column in columns]
    rule = ["---:" if right else ":---" for right in numbers]
    lines = [head, rule, *table]
    return "".join(f"| {' | '.join(inert(cell).replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def markdown_of(rows: Sequence[Mapping[str, str]]) -> str:
    """:func:`markdown` of one row or more, each of them title to cell."""
    return markdown(list(rows[0]), [list(row.values()) for row in rows])
