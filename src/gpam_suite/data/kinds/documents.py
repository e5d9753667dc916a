"""Parallel documents for translation with context: neighbouring sentences joined up to a budget of words.

A *piece* is as many whole sentences of one document, from where the last piece ended, as have at most ``budget`` words
together, on either side (separated by white space; a separator is a word). Words of the raw text are counted,
so that the pieces do not depend on the sub-word segmentation. A longer sentence is a piece of its own. The sentences of
a piece are joined by :data:`SEPARATOR` on both sides, so a hypothesis can be split into sentences again. With
``budget: 1`` every sentence is a piece: sentence-level translation, scored in the same way.
"""

import html
import logging
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.formatting import plural
from gpam_suite.common.options import whole_number
from gpam_suite.data.options import SPLITS, languages_of
from gpam_suite.data.text.lines import decode_lines

log = logging.getLogger(__name__)
SEPARATOR = "\u241e"  # symbol for record separator: a token of its own for Moses and for every sub-word segmentation
JOIN = f" {SEPARATOR} "

Pair = tuple[str, str]  # of the source and of the target language
Document = list[Pair]  # its sentences
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
    paired, blank = [], 0
    for both in zip(left, right, strict=True):
        kept = [pair for pair in zip(*both, strict=True) if all(sentence.strip() for sentence in pair)]
        if any(SEPARATOR in sentence for pair in kept for sentence in pair):
            raise UsageError(f"{name}: a sentence holds '{SEPARATOR}', which separates the sentences of a piece")
        blank += len(both[0]) - len(kept)
        paired += [kept] if kept else []
    if blank:
        log.warning("%s: %s with a blank side left out", name, plural(blank, "pair"))
    return paired


def pieces(document: Document, budget: int) -> list[Pair]:
    """The pieces of one document, both sides."""
    found: list[list[Pair]] = []
    words = (0, 0)
    for pair in document:
        own = tuple(len(sentence.split()) for sentence in pair)
        longer = tuple(before + 1 + new for before, new in zip(words, own, strict=True))
        if found and max(longer) <= budget:
            found[-1].append(pair)
            words = longer
        else:
            found.append([pair])
            words = own
    return [tuple(map(JOIN.join, zip(*pairs, strict=True))) for pairs in found]


def joined(
    documents: Mapping[str, Sequence[Document]], dataset: Mapping[str, Any]
) -> tuple[dict[tuple[str, str | None], list[str]], dict[str, list[int]]]:
    """Lines by (split, language) and the first line of each document (from 0) by split."""
    budget = whole_number(dataset["budget"], 1, "dataset.budget (words of a piece)")
    lines: dict[tuple[str, str | None], list[str]] = {}
    starts: dict[str, list[int]] = {}
    for split in SPLITS:
        cut = [pieces(document, budget) for document in documents[split]]
        starts[split] = [0, *accumulate(map(len, cut))][:-1]
        for side, language in enumerate(languages_of(dataset)):
            lines[split, language] = [piece[side] for own in cut for piece in own]
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
