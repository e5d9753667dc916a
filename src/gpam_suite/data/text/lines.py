"""Reading and writing text: strict UTF-8, one sentence (or paragraph) a line, lines ended by a line feed."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.common.files import sha256
from gpam_suite.data.store.unpack import open_text

# Top-level heading of the WikiText format (` = Title = `); lower levels repeat the sign (` = = Title = = `).
_HEADING = re.compile(r"\s*= (?!=)(?!.* =\s+=).*\S =\s*")


def file_name(split: str, language: str | None) -> str:
    """``train.txt`` for a language model's text, ``train.de.txt`` for one side of parallel text."""
    return f"{split}.txt" if language is None else f"{split}.{language}.txt"


def stream_lines(file: Iterable[bytes], name: str | Path) -> Iterator[str]:
    r"""The lines of a text in turn: split at ``\n`` only, so that no other separator can shift parallel text.

    A byte order mark and the ``\r`` of Windows line ends are taken off; any other ``\r`` becomes a space, as it would
    read as a line end later.

    Raises:
        UsageError: empty text, or not UTF-8 (names the line).
    """
    filled = False
    for number, content in enumerate(file, start=1):
        try:
            line = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(
                f"{name}, line {number}: not UTF-8 (byte 0x{content[error.start]:02x}); convert the file to UTF-8"
            ) from error
        if number == 1:
            line = line.removeprefix("\ufeff")
        line = line.removesuffix("\n")
        if "\r" in line:
            line = line.removesuffix("\r").replace("\r", " ")
        filled = filled or bool(line.strip())
        yield line
    if not filled:
        raise UsageError(f"text file {name} is empty: wanted at least one line of text")


def decode_lines(content: bytes, name: str | Path) -> list[str]:
    """The lines of a text; see :func:`stream_lines`."""
    return list(stream_lines(io.BytesIO(content), name))


def lines_of(content: bytes) -> list[bytes]:
    """The lines of a text with their line feeds, byte for byte; the last one may have none."""
    return io.BytesIO(content).readlines()


def read_lines(path: Path) -> list[str]:
    r"""The lines of a text file, split at ``\n`` only (``str.splitlines`` splits at more); see :func:`stream_lines`."""
    with open_text(path) as file:
        return list(stream_lines(file, path))


def verified(lines: Iterable[str], accepted: Sequence[str], what: str) -> str:
    """The SHA-256 of lines, each with its line feed: the same whatever file they came from.

    Raises:
        UsageError: it is none of those ``accepted`` (``sha256:...``), where there are some.
    """
    found = sha256("".join(f"{line}\n" for line in lines).encode())
    if accepted and f"sha256:{found}" not in accepted:
        wanted = ", ".join(accepted)
        raise UsageError(f"{what} with sha256:{found}, wanted one of {wanted}; remove the file and get it again")
    return found


def wikitext_documents(lines: Iterable[str]) -> list[int]:
    """First line (from 0) of each WikiText article: a top-level heading between two blank lines."""
    starts = []
    before_blank, heading = True, False
    for number, line in enumerate(chain(lines, [""])):
        blank = not line.strip()
        if heading and blank:
            starts.append(number - 1)
        heading = before_blank and _HEADING.fullmatch(line) is not None
        before_blank = blank
    return [0, *starts[1:]] if starts else [0]
