"""fairseq's dictionaries and indexed data sets."""

import re
import struct
from array import array
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from gpam.errors import UsageError
from gpam_suite.data.store.stages import Piece, Stage, Stages
from gpam_suite.data.workers import BadLine

DICTIONARY = "dict.txt"
BIN, IDX = "data.bin", "data.idx"
RESERVED = ("<s>", "<pad>", "</s>")  # the first ids of every dictionary of fairseq's; the next is <unk>
UNK_ID, EOS_ID = 3, 2
_LARGEST_SHORT = 65500  # fairseq writes ids of a smaller dictionary as two bytes
_HEADER = struct.Struct("<9sQBQ")  # of the index of an "mmap" data set: magic word, version, type of an id, items
_TYPE_CODES = {np.uint16: 8, np.uint32: 9}  # as fairseq's indexed data sets name them
_DICTIONARY_LINE = re.compile(r"(\S+) ([0-9]{1,18})")


def dictionary_name(language: str | None = None) -> str:
    """The file in which fairseq looks for the dictionary of ``language``, None for a language model's."""
    return DICTIONARY if language is None else f"dict.{language}.txt"


def new_dictionary(size: int = 0) -> Any:
    """A ``Dictionary`` of fairseq's with its special symbols, filled up to ``size`` entries in all."""
    import gpam_fairseq.compat  # noqa: F401  (must come before fairseq)

    # isort: split
    from fairseq.data import Dictionary

    made = Dictionary()
    for index in range(len(made), size):
        made.add_symbol(f"w{index}")
    return made


def build_dictionary(counts: Counter[str], min_count: int) -> Any:
    """A fairseq ``Dictionary`` of the words that ``counts`` holds, as fairseq's preprocess command builds it.

    Words seen less than ``min_count`` times are left out (they become ``<unk>``); the size is filled up to a multiple
    of 8. A literal ``<unk>`` in the text is the dictionary's own ``<unk>``.
    """
    dictionary = new_dictionary()
    for word, count in sorted(counts.items()):
        dictionary.add_symbol(word, count)
    dictionary.finalize(threshold=min_count)
    return dictionary


def load_dictionary(path: Path) -> Any:
    """The fairseq ``Dictionary`` in a file that somebody else may have made.

    A word and its count a line, ids counting from 4 in the order of the lines.

    Raises:
        UsageError: not such a file, a word twice, or one that fairseq reserves.
    """
    try:
        text = path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"dictionary {path} cannot be read ({error}); get the file again") from None
    dictionary = new_dictionary()
    seen = {*RESERVED, "<unk>"}
    for number, line in enumerate(text.split("\n")[: -1 if text.endswith("\n") else None], start=1):
        if (match := _DICTIONARY_LINE.fullmatch(line)) is None:
            raise UsageError(f"dictionary {path}, line {number}: got '{line[:40]}', wanted a word and its count")
        if match[1] in seen:
            raise UsageError(f"dictionary {path}, line {number}: '{match[1]}' is there already, or reserved by fairseq")
        seen.add(match[1])
        dictionary.add_symbol(match[1], int(match[2]))
    return dictionary


def load_ids(dictionary: Path) -> dict[str, int]:
    """Word to id of a dictionary that this suite wrote, without fairseq."""
    ids = {word: number for number, word in enumerate((*RESERVED, "<unk>"))}
    with dictionary.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            ids[line.rpartition(" ")[0]] = len(ids)
    return ids


def id_type(size: int) -> type:
    """How fairseq writes an id of a dictionary of this size (``indexed_dataset.best_fitting_int_dtype``)."""
    return np.uint16 if size < _LARGEST_SHORT else np.uint32


def write_index(path: Path, lengths: Sequence[int], kind: type) -> None:
    """The index of a data set whose items have ``lengths`` ids of type ``kind`` (fairseq's ``mmap``)."""
    sizes = np.asarray(lengths, dtype=np.int32)
    offsets = np.cumsum(sizes, dtype=np.int64)
    offsets -= sizes
    offsets *= kind().itemsize
    with path.open("wb") as index:
        index.write(_HEADER.pack(b"MMIDIDX", 1, _TYPE_CODES[kind], len(sizes)))
        index.write(sizes)
        index.write(offsets)


def binarise(stages: Stages, text: Piece, dictionary: Stage, name: str) -> Stage:
    """The stage that writes a segmented text as fairseq's indexed data set (one item a line, end of sentence appended).

    Its files are what fairseq's preprocess command writes (``--dataset-impl mmap``). Facts: ``tokens`` (with one end of
    sentence a line) and ``unk`` (how many of them are ``<unk>``).

    Raises:
        UsageError: a token that fairseq would read as the start, padding or end symbol.
    """
    words, kind = dictionary.piece(DICTIONARY), id_type(dictionary.facts["size"])

    def work(folder: Path) -> dict[str, int]:
        facts, sizes = Counter(tokens=0, unk=0), array("i")
        with (folder / BIN).open("wb") as data:
            for ids, lengths in stages.workers.results(partial(_ids, words.path, kind), text.path, f"binarise {name}"):
                data.write(ids.tobytes())
                sizes.extend(lengths)
                facts.update(tokens=len(ids), unk=int((ids == UNK_ID).sum()))
        write_index(folder / IDX, sizes, kind)
        return dict(facts)

    return stages.run("binarise", {"text": text, "dictionary": words}, work)


def _ids(dictionary: Path, kind: type, lines: list[str]) -> tuple[np.ndarray, array]:
    lookup = _known_ids(dictionary).get
    ids: list[int] = []
    sizes = array("i")
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if "<" in line and (found := sorted(set(RESERVED).intersection(words))):
            raise BadLine(number, f"{found[0]} is a symbol that fairseq reserves; write it differently")
        ids.extend([lookup(word, UNK_ID) for word in words])
        ids.append(EOS_ID)
        sizes.append(len(words) + 1)
    return np.array(ids, dtype=kind), sizes


_known_ids = lru_cache(maxsize=2)(load_ids)  # of source and target
