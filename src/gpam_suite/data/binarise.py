"""fairseq's dictionary and indexed data sets from segmented text."""

import os
import struct
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gpam_suite.data.store.stages import Piece, Stage, Stages
from gpam_suite.data.workers import BadLine

DICTIONARY = "dict.txt"
BIN, IDX = "data.bin", "data.idx"
RESERVED = ("<s>", "<pad>", "</s>")  # the first ids of every dictionary of fairseq's; the next is <unk>
UNK_ID, EOS_ID = 3, 2
_VERSION = 1
_LARGEST_SHORT = 65500  # fairseq writes ids of a smaller dictionary as two bytes
_HEADER = struct.Struct("<9sQBQ")  # of the index of an "mmap" data set: magic word, version, type of an id, items
_SIZE, _BLOCK = 4, 1 << 18  # bytes of an item's size, and items whose offsets are made at once
_TYPE_CODES = {np.uint16: 8, np.uint32: 9}  # as fairseq's indexed data sets name them


def build_dictionary(counts: Counter[str], min_count: int) -> Any:
    """A fairseq ``Dictionary`` of the words that ``counts`` holds, as fairseq's preprocess command builds it.

    Words seen less than ``min_count`` times are left out (they become ``<unk>``); the size is filled up to a multiple
    of 8. A literal ``<unk>`` in the text is the dictionary's own ``<unk>``.
    """
    import gpam_fairseq.compat  # noqa: F401  (must come before fairseq)

    # isort: split
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for word, count in sorted(counts.items()):
        dictionary.add_symbol(word, count)
    dictionary.finalize(threshold=min_count)
    return dictionary


def fairseq_version() -> str:
    """Version of the fairseq that wrote the data."""
    import gpam_fairseq.compat  # noqa: F401

    # isort: split
    import fairseq

    return fairseq.__version__


def binarise(stages: Stages, text: Piece, dictionary: Stage, name: str) -> Stage:
    """The stage that writes a segmented text as fairseq's indexed data set (one item a line, end of sentence appended).

    Its files are what fairseq's preprocess command writes (``--dataset-impl mmap``). Facts: ``tokens`` (with one end of
    sentence a line) and ``unk`` (how many of them are ``<unk>``).

    Raises:
        UsageError: a token that fairseq would read as the start, padding or end symbol.
    """
    words = dictionary.piece(DICTIONARY)

    def work(folder: Path) -> dict[str, int]:
        # fairseq.data.indexed_dataset.best_fitting_int_dtype
        kind = np.uint16 if dictionary.facts["size"] < _LARGEST_SHORT else np.uint32
        facts = Counter(tokens=0, unk=0)
        results = stages.workers.results((_binariser, (words.path, kind)), text.path, f"binarise {name}")
        with (folder / BIN).open("wb") as data, (folder / IDX).open("w+b") as index:
            index.write(bytes(_HEADER.size))
            for content, lengths, unk in results:
                data.write(content)
                index.write(lengths)
                facts.update(tokens=len(content) // kind().itemsize, unk=unk)
            _complete(index, kind)
        return dict(facts)

    return stages.run("binarise", _VERSION, {"text": text, "dictionary": words}, work)


def load_ids(dictionary: Path) -> dict[str, int]:
    """Word to id of a dictionary of fairseq's."""
    ids = {word: number for number, word in enumerate((*RESERVED, "<unk>"))}
    with dictionary.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            ids[line.rpartition(" ")[0]] = len(ids)
    return ids


def _binariser(dictionary: Path, kind: type) -> Callable[[list[str]], tuple[bytes, bytes, int]]:
    lookup = load_ids(dictionary).get

    def work(lines: list[str]) -> tuple[bytes, bytes, int]:
        ids: list[int] = []
        sizes = array("i")
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if "<" in line and (found := sorted(set(RESERVED).intersection(words))):
                raise BadLine(number, f"{found[0]} is a symbol that fairseq reserves; write it differently")
            ids.extend([lookup(word, UNK_ID) for word in words])
            ids.append(EOS_ID)
            sizes.append(len(words) + 1)
        array_of_ids = np.array(ids, dtype=kind)
        return array_of_ids.tobytes(), sizes.tobytes(), int((array_of_ids == UNK_ID).sum())

    return work


def _complete(index: BinaryIO, kind: type) -> None:
    """Write the header before the sizes of the items, and their offsets behind them."""
    number = (index.tell() - _HEADER.size) // _SIZE
    index.seek(0)
    index.write(_HEADER.pack(b"MMIDIDX", 1, _TYPE_CODES[kind], number))
    offset = 0
    for begin in range(0, number, _BLOCK):
        index.seek(_HEADER.size + begin * _SIZE)
        sizes = np.frombuffer(index.read(min(_BLOCK, number - begin) * _SIZE), dtype=np.int32).astype(np.int64)
        ends = offset + np.cumsum(sizes * kind().itemsize)
        index.seek(0, os.SEEK_END)
        index.write((ends - sizes * kind().itemsize).tobytes())
        offset = int(ends[-1])
