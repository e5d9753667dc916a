"""Parallel documents for translation with context: neighbouring sentences joined up to a budget of words.

A *piece* is as many whole sentences of one document, from where the last piece ended, as have at most ``budget`` words
together, on either side (separated by white space; a separator is a word). Words of the raw text are counted,
so that the pieces do not depend on the sub-word segmentation. A longer sentence is a piece of its own. The sentences of
a piece are joined by :data:`SEPARATOR` on both sides, so a hypothesis can be split into sentences again. With
``budget: 1`` every sentence is a piece: sentence-level translation, scored in the same way.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.options import whole_number
from gpam_suite.data.options import SPLITS
from gpam_suite.data.text.lines import decode_lines

SEPARATOR = "\u241e"  # symbol for record separator: a token of its own for Moses and for every sub-word segmentation
JOIN = f" {SEPARATOR} "

Document = tuple[list[str], list[str]]  # the sentences of both sides
_TAG = re.compile(r"<(?:(doc)\b[^>]*|seg\b[^>]*>(.*?)</seg)>", re.DOTALL | re.IGNORECASE)


def read_xml(content: bytes, name: str) -> list[list[str]]:
    """Sentences by document of a file in the format of NIST's mteval (``<doc>``, ``<seg>``), which must have some.

    White space is normalised and entities are decoded.
    """
    documents: list[list[str]] = []
    for tag in _TAG.finditer("\n".join(decode_lines(content, name))):
        if tag[1]:
            documents.append([])
        elif not documents:
            raise UsageError(f"{name}: a <seg> stands before the first <doc>; wanted a file of NIST's mteval format")
        else:
            documents[-1].append(" ".join(html.unescape(tag[2]).split()))
    if not documents or not all(documents):
        raise UsageError(f"{name}: wanted documents (<doc>) with sentences (<seg>), and found none")
    return documents


def read_plain(content: bytes, boundaries: bytes, name: str) -> list[list[str]]:
    """Sentences by document of a text with one sentence a line, and a table of its documents.

    The table has a header and a row a document: its name, its first line (from 1), its number of lines. It must cover
    the text, document after document.
    """
    lines = decode_lines(content, name)
    documents: list[list[str]] = []
    begin = 0
    for number, row in enumerate(decode_lines(boundaries, f"documents of {name}")[1:], start=2):
        if (match := re.fullmatch(r"[^\t]+\t(\d+)\t(\d+)", row)) is None:
            raise UsageError(
                f"documents of {name}, line {number}: got '{row}', wanted a name, a line, a number of lines"
            )
        if int(match[1]) != begin + 1:
            raise UsageError(f"documents of {name}, line {number}: begins at {match[1]}, wanted it at {begin + 1}")
        end = begin + int(match[2])
        documents.append(lines[begin:end])
        begin = end
    if begin != len(lines):
        raise UsageError(f"documents of {name}: they have {begin:,} lines, the text has {len(lines):,}")
    return documents


def pair(left: list[list[str]], right: list[list[str]], name: str) -> list[Document]:
    """Documents of both sides, sentence by sentence; pairs with a blank side are left out."""
    if list(map(len, left)) != list(map(len, right)):
        raise UsageError(f"{name}: the two sides differ in their documents, or in the number of sentences of one")
    paired = []
    for source, target in zip(left, right, strict=True):
        kept = [(a, b) for a, b in zip(source, target, strict=True) if a.strip() and b.strip()]
        if any(SEPARATOR in line for both in kept for line in both):
            raise UsageError(f"{name}: a sentence holds '{SEPARATOR}', which separates the sentences of a piece")
        paired.append(([a for a, _ in kept], [b for _, b in kept]))
    return [document for document in paired if document[0]]


def pieces(document: Document, budget: int) -> list[tuple[str, str]]:
    """The pieces of one document, both sides."""
    found: list[tuple[list[str], list[str]]] = []
    words = (0, 0)
    for sentences in zip(*document, strict=True):
        own = tuple(len(sentence.split()) for sentence in sentences)
        longer = tuple(before + 1 + new for before, new in zip(words, own, strict=True))
        if found and max(longer) <= budget:
            words = longer
        else:
            found.append(([], []))
            words = own
        for side, sentence in zip(found[-1], sentences, strict=True):
            side.append(sentence)
    return [(JOIN.join(source), JOIN.join(target)) for source, target in found]


def joined(
    documents: Mapping[str, Sequence[Document]], dataset: Mapping[str, Any]
) -> tuple[dict[tuple[str, str | None], list[str]], dict[str, list[int]]]:
    """Lines by (split, language) and the first line of each document (from 0) by split."""
    budget = whole_number(dataset["budget"], 1, "dataset.budget (words of a piece)")
    sides = (dataset["source"], dataset["target"])
    lines: dict[tuple[str, str | None], list[str]] = {(split, side): [] for split in SPLITS for side in sides}
    starts: dict[str, list[int]] = {split: [] for split in SPLITS}
    for split in SPLITS:
        for document in documents[split]:
            starts[split].append(len(lines[split, sides[0]]))
            for piece in pieces(document, budget):
                for side, text in zip(sides, piece, strict=True):
                    lines[split, side].append(text)
    return lines, starts


def split_piece(line: str, sentences: int) -> tuple[list[str], bool]:
    """The sentences of a translated piece, and whether it had ``sentences`` of them.

    The k-th part is taken as the k-th sentence. Missing sentences are empty and surplus parts are added to the last
    one, so a wrong number of separators costs BLEU as missing and misplaced words do.
    """
    parts = [" ".join(part.split()) for part in line.split(SEPARATOR)]
    right = len(parts) == sentences
    if len(parts) > sentences:
        parts[sentences - 1 :] = [" ".join(part for part in parts[sentences - 1 :] if part)]
    return parts + [""] * (sentences - len(parts)), right
