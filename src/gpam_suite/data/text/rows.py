"""Texts of which line n of one belongs to line n of the others: which lines stay, and which are held out."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from gpam_suite.data.progress import progress
from gpam_suite.data.store.stages import Piece, Stage, Stages

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
) -> Stage:
    """The stage that drops or holds out rows of ``texts``; each is one or more texts, read one after another.

    Args:
        judged: the names in ``texts`` that decide: of both sides.
        blank: drop a row with a judged text that is blank.
        clean: drop a pair that :func:`clean_keeps` does not keep.
        hold_out: of the rows that stay hold out every so many-th.

    Files: ``kept.<name>`` and, with ``hold_out``, ``held.<name>``, for each name in ``texts``. Facts: how many rows
    were ``kept``, ``held`` and ``dropped``.
    """

    places = [list(texts).index(name) for name in judged]

    def stays(row: Sequence[bytes]) -> bool:
        own = [row[place] for place in places]
        if clean:
            return clean_keeps(clean, *(len(line.split()) for line in own))
        return not blank or all(line.decode().strip() for line in own)

    def work(folder: Path) -> dict[str, int]:
        facts = {KEPT: 0, HELD: 0, "dropped": 0}
        with contextlib.ExitStack() as stack:
            targets = {
                part: [stack.enter_context((folder / f"{part}.{name}").open("wb")) for name in texts]
                for part in ([KEPT, HELD] if hold_out else [KEPT])
            }
            for row in _rows(list(texts.values()), what):
                if not stays(row):
                    facts["dropped"] += 1
                    continue
                number = facts[KEPT] + facts[HELD] + 1
                part = HELD if hold_out and number % hold_out == 0 else KEPT
                facts[part] += 1
                for target, line in zip(targets[part], row, strict=True):
                    target.write(line)
        return facts

    made_from = {"texts": {name: list(pieces) for name, pieces in texts.items()}, "judged": list(judged)}
    return stages.run("select", made_from | {"blank": blank, "clean": clean, "hold_out": hold_out}, work)


def _rows(columns: Sequence[Sequence[Piece]], what: str) -> Iterator[tuple[bytes, ...]]:
    size = sum(piece.path.stat().st_size for piece in columns[0])
    with progress(what, size) as bar:
        for pieces in zip(*columns, strict=True):
            with contextlib.ExitStack() as stack:
                files: list[BinaryIO] = [stack.enter_context(piece.path.open("rb")) for piece in pieces]
                for row in zip(*files, strict=True):
                    bar.update(len(row[0]))
                    yield row
