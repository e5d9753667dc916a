"""Generated sequences with exact answers, for models of long sequences: ``copy`` and ``selective_recall``.

A sequence is a context, the mark ``=`` and the answers; only the answers are trained and judged
(:mod:`gpam_fairseq.recall`). Symbols are values ``v0 v1 ...``, keys ``k0 k1 ...`` and the filler ``.``.

``copy``: a random string of values, and the same string again::

    v3 v1 v7 = v3 v1 v7

The copying task of Arjovsky, Shah, Bengio (arXiv 1511.06464) and Gu, Goel, Re (arXiv 2111.00396), with a string as long
as the sequence allows, as in Jelassi et al. (arXiv 2402.01032). All answers follow one another.

``selective_recall``: key-value pairs at random places among fillers; then every key once more, in another order, each
with its value::

    . . k5 v2 . . . k0 v9 . = k0 v9 k5 v2

The multi-query associative recall of Arora et al. (arXiv 2312.04927) with the fillers of selective copying (Gu, Dao,
arXiv 2312.00752): the model must leave the fillers alone and find a value by its key, at any distance. Values may occur
more than once, keys may not.

``length`` is the number of positions that the model reads: fairseq's start symbol and the sequence, which so has
``length - 1`` symbols. A sequence occurs once in all splits together. The text depends on the options and this module
only.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.files import sha256
from gpam_suite.common.options import whole_number

FILLER, KEY = ".", "k"
_AROUND = 2  # positions of the start symbol and of the mark
_PATIENCE = 50  # attempts in a row without a new sequence before the options are called exhausted


def fingerprint() -> dict[str, str]:
    """What the text depends on beside its options: this module."""
    return {"generator": sha256(Path(__file__).read_bytes())}


def generate(dataset: Mapping[str, Any]) -> dict[tuple[str, str | None], list[str]]:
    """Lines by (split, None): ``sequences``, ``valid_sequences``, ``test_sequences`` of ``dataset.length`` tokens.

    Raises:
        UsageError: a length that the task cannot have, too few keys, or more sequences than there are.
    """
    random = Random(whole_number(dataset["seed"], 0, "dataset.seed"))
    draw = (_copies if dataset["kind"] == "copy" else _recalls)(dataset, random)
    seen: set[bytes] = set()
    lines: dict[tuple[str, str | None], list[str]] = {}
    for split, option in (("test", "test_sequences"), ("valid", "valid_sequences"), ("train", "sequences")):
        wanted = whole_number(dataset[option], 1, f"dataset.{option}")
        lines[split, None] = [_new(draw, seen, dataset) for _ in range(wanted)]
    return lines


def _new(draw: Iterator[list[str]], seen: set[bytes], dataset: Mapping[str, Any]) -> str:
    for _ in range(_PATIENCE):
        line = " ".join(next(draw))
        digest = hashlib.blake2b(line.encode(), digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            return line
    raise UsageError(
        f"dataset.length={dataset['length']}: no new sequence after {len(seen):,} of them; ask for fewer sequences, or "
        "for a greater length or more values"
    )


def _alphabet(letter: str, size: Any, option: str) -> list[str]:
    return [f"{letter}{number}" for number in range(whole_number(size, 2, f"dataset.{option}"))]


def _copies(dataset: Mapping[str, Any], random: Random) -> Iterator[list[str]]:
    from gpam_fairseq.recall import MARK, VALUE

    length = whole_number(dataset["length"], 4, "dataset.length")
    if length % 2:
        raise UsageError(
            f"dataset.length: got {length}, wanted an even number: the start symbol, a string, the mark and the copy"
        )
    values = _alphabet(VALUE, dataset["values"], "values")
    while True:
        string = random.choices(values, k=(length - _AROUND) // 2)
        yield [*string, MARK, *string]


def _recalls(dataset: Mapping[str, Any], random: Random) -> Iterator[list[str]]:
    from gpam_fairseq.recall import MARK, VALUE

    values = _alphabet(VALUE, dataset["values"], "values")
    keys = _alphabet(KEY, dataset["keys"], "keys")
    pairs, length = whole_number(dataset["pairs"], 1, "dataset.pairs"), dataset["length"]
    if pairs > len(keys):
        raise UsageError(f"dataset.pairs={pairs}: there are only dataset.keys={len(keys)} keys, and each is used once")
    whole_number(length, 4 * pairs + _AROUND, f"dataset.length (with dataset.pairs={pairs})")
    places = length - _AROUND - 3 * pairs  # of the context, a pair taking one of them
    while True:
        chosen = random.sample(keys, pairs)
        value = dict(zip(chosen, random.choices(values, k=pairs), strict=True))
        context: list[tuple[str, ...]] = [(FILLER,)] * places
        for place, key in zip(random.sample(range(places), pairs), chosen, strict=True):
            context[place] = (key, value[key])
        asked = random.sample(chosen, pairs)
        yield [
            *(symbol for group in context for symbol in group),
            MARK,
            *(symbol for key in asked for symbol in (key, value[key])),
        ]
