"""Text for language models by character: every byte of a text is one symbol, and nothing is changed.

A text is cut at fixed places into train, valid and test and binarised byte by byte, spaces and line feeds included,
with no end-of-line symbol added: the ids of a split are its text (:func:`restore` gives it back). In the dictionary a
printable ASCII character stands for itself, any other byte is ``x`` and its two hexadecimal digits: a space is ``x20``,
a line feed ``x0A``.

A symbol is a byte, as it is for enwik8 in the literature (its "bits per character" are bits a byte of UTF-8); in ASCII
text, such as tinyshakespeare, a byte is a character. The dictionary holds the bytes of the whole text, so that none is
unknown in valid or test, as in the published set-ups for enwik8 (205 bytes).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gpam.errors import UsageError
from gpam_suite.common.options import whole_number
from gpam_suite.data.binarise import build_dictionary, dictionary_name, id_type, write_index
from gpam_suite.data.options import SPLITS
from gpam_suite.data.prepared import written
from gpam_suite.data.text.lines import file_name, lines_of


def symbol(byte: int) -> str:
    """The dictionary's name of a byte."""
    return chr(byte) if 0x21 <= byte <= 0x7E else f"x{byte:02X}"


def restore(symbols: Iterable[str]) -> bytes:
    """The text of dictionary symbols."""
    return bytes(ord(name) if len(name) == 1 else int(name[1:], 16) for name in symbols)


def document_starts(lines: list[bytes], unit: str | None) -> list[int]:
    """First line (from 0) of each document; what stands before the first whole one is a document too.

    ``unit``: ``paragraphs`` (a document begins behind blank lines), ``pages`` (it begins at a line that is ``<page>``,
    in MediaWiki's XML), or None (the text is one document).
    """
    if unit is None:
        return [0]
    if unit == "pages":
        begins = [line.strip() == b"<page>" for line in lines]
    else:
        blank = [not line.strip() for line in lines]
        begins = [False, *(before and not here for before, here in pairwise(blank))]
    return sorted({0, *(number for number, begin in enumerate(begins) if begin)})


def cut(content: bytes, dataset: Mapping[str, Any]) -> dict[str, bytes]:
    """The splits of a text: ``dataset.split`` gives the characters of train, valid and test, which follow one another.

    They must add up to the text, and its different characters be ``dataset.types``.
    """
    sizes = dataset["split"]
    if not isinstance(sizes, Mapping) or sorted(sizes) != sorted(SPLITS):
        raise UsageError(f"dataset.split: got {sizes!r}, wanted the characters of {', '.join(SPLITS)}")
    total = sum(whole_number(sizes[split], 1, f"dataset.split.{split}") for split in SPLITS)
    if total != len(content):
        raise UsageError(
            f"{dataset['name']}: the text has {len(content):,} characters, wanted {total:,} (dataset.split)"
        )
    types = len(set(content))
    if types != dataset["types"]:
        raise UsageError(f"{dataset['name']}: {types} different characters, wanted {dataset['types']} (dataset.types)")
    ends = np.cumsum([sizes[split] for split in SPLITS]).tolist()
    return {split: content[end - sizes[split] : end] for split, end in zip(SPLITS, ends, strict=True)}


def build(dataset: Mapping[str, Any], content: bytes, folder: Path) -> dict[str, Any]:
    """Write text/ (the splits as they are) and bin/ into ``folder``; returns their part of the manifest."""
    for part in ("text", "bin"):
        (folder / part).mkdir()
    splits = cut(content, dataset)
    dictionary = build_dictionary(Counter({symbol(byte): splits["train"].count(byte) for byte in set(content)}), 0)
    kind = id_type(len(dictionary))
    ids = np.array([dictionary.index(symbol(byte)) for byte in range(256)], dtype=kind)
    counts, documents = {}, {}
    for split, text in splits.items():
        lines = lines_of(text)
        documents[split] = document_starts(lines, dataset.get("documents"))
        (folder / "text" / file_name(split, None)).write_bytes(text)
        (folder / "bin" / f"{split}.bin").write_bytes(ids[np.frombuffer(text, dtype=np.uint8)].tobytes())
        write_index(folder / "bin" / f"{split}.idx", list(map(len, lines)), kind)
        same = dict.fromkeys(("words", "characters", "tokens"), len(text))
        counts[split] = {"lines": len(lines), **same, "types": len(set(text)), "unk": 0}
    dictionary.save(str(folder / "bin" / dictionary_name()))
    return {"unit": "character", "splits": counts, "dictionary": len(dictionary), **written(folder, documents)}
