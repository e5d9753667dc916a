"""Texts of which line n of one belongs to line n of the others: which lines stay, and which are held out."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from gpam_suite.data.progress import progress
from gpam_suite.data.store.stages import Piece, Stage, Stages

KEPT, HELD = "kept", "held"
_VERSION = 1


@dataclass(frozen=True)
class Clean:
    """A pair stays if each side has ``least`` to ``most`` words and neither has more than ``ratio`` times the other's.

    The rule of Moses' ``clean-corpus-n``.
    """

    least: int
    most: int
    ratio: float

    def keeps(self, left: int, right: int) -> bool:
        """Whether a pair of this many words stays."""
        return (
            min(left, right) >= self.least
            and max(left, right) <= self.most
            and max(left, right) <= self.ratio * min(left, right)
        )


@dataclass(frozen=True)
class Rule:
    """What happens to a row of texts.

    ``blank``: a row with a judged text that is blank is dropped. ``clean``: so is a pair that the rule does not keep.
    ``hold_out``: of the rows that stay every ``hold_out``-th is held out.
    """

    blank: bool = False
    clean: Clean | None = None
    hold_out: int | None = None


def select(stages: Stages, texts: Mapping[str, Sequence[Piece]], judged: Sequence[str], rule: Rule, what: str) -> Stage:
    """The stage that applies ``rule`` to the rows of ``texts``; each is one or more texts, read one after another.

    Files: ``kept.<name>`` and, with ``hold_out``, ``held.<name>``, for each name in ``texts``. Facts: how many rows
    were ``kept``, ``held`` and ``dropped``.
    """

    def work(folder: Path) -> dict[str, int]:
        facts = {KEPT: 0, HELD: 0, "dropped": 0}
        judge = _judge(rule, [list(texts).index(name) for name in judged])
        parts = [KEPT, HELD] if rule.hold_out else [KEPT]
        with contextlib.ExitStack() as stack:
            targets = {
                part: [stack.enter_context((folder / f"{part}.{name}").open("wb")) for name in texts] for part in parts
            }
            for row in _rows(list(texts.values()), stages, what):
                if not judge(row):
                    facts["dropped"] += 1
                    continue
                number = facts[KEPT] + facts[HELD] + 1
                part = HELD if rule.hold_out and number % rule.hold_out == 0 else KEPT
                facts[part] += 1
                for target, line in zip(targets[part], row, strict=True):
                    target.write(line)
        return facts

    made_from = {"texts": {name: list(pieces) for name, pieces in texts.items()}, "judged": list(judged)}
    return stages.run("select", _VERSION, made_from | asdict(rule), work)


def _judge(rule: Rule, judged: list[int]) -> Callable[[Sequence[bytes]], bool]:
    if rule.clean:
        left, right = judged
        return lambda row: rule.clean.keeps(len(row[left].split()), len(row[right].split()))
    if rule.blank:
        return lambda row: all(row[index].decode().strip() for index in judged)
    return lambda _: True


def _rows(columns: Sequence[Sequence[Piece]], stages: Stages, what: str) -> Iterator[tuple[bytes, ...]]:
    size = sum(piece.path.stat().st_size for piece in columns[0])
    with progress(what, size) as bar:
        for pieces in zip(*columns, strict=True):
            with contextlib.ExitStack() as stack:
                files: list[BinaryIO] = [stack.enter_context(piece.path.open("rb")) for piece in pieces]
                for row in zip(*files, strict=True):
                    bar.update(len(row[0]))
                    yield row
