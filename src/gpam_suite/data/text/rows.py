"""Texts of which line n of one belongs to line n of the others: which lines stay, and which are held out."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from gpam_suite.data.progress import progress
from gpam_suite.data.store.stages import Piece, Stages

KEPT, HELD = "kept", "held"


def clean_keeps(clean: Mapping[str, float], left: int, right: int) -> bool:
    """Whether a pair of this many words stays: ``least`` to ``most`` on each side, neither more than ``ratio`` times
    the other. The rule of Moses' ``clean-corpus-n``."""
    few, many = sorted((left, right))
    return few >= clean["least"] and many <= clean["most"] and many <= clean["ratio"] * few


def select(
    stages: Stages,
    texts: Mapping[str, Sequence[Piece]],
    judged: Sequence[str],
    what: str,
    *,
    blank: bool = False,
    clean: Mapping[str, float] | None = None,
    hold_out: int | None = None,
) -> tuple[dict[str, int], dict[str, dict[str, Piece]]]:
    """Drop or hold out rows of ``texts`` by a stage; each of them is one or more texts, read one after another.

    Args:
        judged: the names in ``texts`` that decide: of both sides.
        blank: drop a row with a judged text that is blank.
        clean: drop a pair that :func:`clean_keeps` does not keep.
        hold_out: of the rows that stay hold out every so many-th.

    Returns:
        How many rows were ``kept``, ``held`` and ``dropped``; and what was ``kept`` and, with ``hold_out``, ``held`` of
        each name in ``texts``. Names of the same texts have one file together.
    """
    digests = {name: tuple(piece.digest for piece in pieces) for name, pieces in texts.items()}
    columns = {digest: texts[name] for name, digest in digests.items()}
    column = {name: list(columns).index(digest) for name, digest in digests.items()}
    parts = [KEPT, HELD] if hold_out else [KEPT]

    def stays(row: Sequence[bytes]) -> bool:
        own = [row[column[name]] for name in judged]
        if clean:
            return clean_keeps(clean, *(len(line.split()) for line in own))
        return not blank or all(line.decode().strip() for line in own)

    def work(folder: Path) -> dict[str, int]:
        facts = {KEPT: 0, HELD: 0, "dropped": 0}
        with contextlib.ExitStack() as stack:
            targets = {
                part: [stack.enter_context((folder / f"{part}.{number}").open("wb")) for number in range(len(columns))]
                for part in parts
            }
            for row in _rows(list(columns.values()), what):
                if not stays(row):
                    facts["dropped"] += 1
                    continue
                number = facts[KEPT] + facts[HELD] + 1
                part = HELD if hold_out and number % hold_out == 0 else KEPT
                facts[part] += 1
                for target, line in zip(targets[part], row, strict=True):
                    target.write(line)
        return facts

    made_from = {"texts": digests, "judged": list(judged), "blank": blank, "clean": clean, "hold_out": hold_out}
    stage = stages.run("select", made_from, work)
    return stage.facts, {part: {name: stage.piece(f"{part}.{column[name]}") for name in texts} for part in parts}


def _rows(columns: Sequence[Sequence[Piece]], what: str) -> Iterator[tuple[bytes, ...]]:
    size = sum(piece.path.stat().st_size for piece in columns[0])
    with progress(what, size) as bar:
        for pieces in zip(*columns, strict=True):
            with contextlib.ExitStack() as stack:
                files: list[BinaryIO] = [stack.enter_context(piece.path.open("rb")) for piece in pieces]
                for row in zip(*files, strict=True):
                    bar.update(len(row[0]))
                    yield row
