"""Where runs stand, read from what their workers write: for who waits for one, and for who looks at an experiment."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

import yaml

from gpam.errors import UsageError
from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import MISSING, duration, number
from gpam_suite.common.sections import Section, Table
from gpam_suite.config.identity import CONFIG
from gpam_suite.records import archives
from gpam_suite.records.folder import RECORD, Record, read_record
from gpam_suite.records.lines import HISTORY, read_history
from gpam_suite.run.outcomes import read_outcome

HEAD = ("Member", "Status", "Update", "Loss (bits)", "Validation", "Left")
SILENT = 600.0  # seconds without a word after which a member is called silent
PRINT_EVERY = 10.0  # seconds between two lines of :class:`Progress`


def members(results: Path, experiment: str) -> Section:
    """A row for each run of ``experiment`` below ``results`` that has begun.

    Raises:
        UsageError: there is none.
    """
    root = Path(results) / "runs" / safe_name(experiment)
    folders = [folder for folder in sorted(root.glob("*/seed*")) if (folder / CONFIG).is_file()]
    rows = [_row_or_damage(folder) for folder in folders]
    names = Counter(name for name, *_ in rows)
    for folder, line in zip(folders, rows, strict=True):
        if names[line[0]] > 1:  # of one model and seed, in other settings: the hash tells them apart
            line[0] = f"{folder.parent.name} {folder.name}"
    if archives.archive_of(root).is_file() and not rows:
        raise UsageError(f"the runs of {experiment} are packed ({archives.archive_of(root)}): all of them have ended")
    if not rows:
        known = ", ".join(sorted(folder.name for folder in root.parent.glob("*/")))
        wanted = f"one of {known}" if known else "a folder with runs"
        raise UsageError(f"no run at {root} has begun; wanted {wanted}")
    counts = Counter(status.partition(" ")[0] for _, status, *_ in rows)
    said = ", ".join([f"{counts.pop('finished', 0)} of {len(rows)} finished", *(f"{n} {s}" for s, n in counts.items())])
    return Section(experiment, [Table(HEAD, rows), said])


def _row_or_damage(folder: Path) -> list[str]:
    """:func:`row`; of a damaged run what is wrong with it, so that the others are told of."""
    try:
        return row(folder)
    except UsageError as error:
        model, seed = folder.parent.name, folder.name.partition("-")[0]
        return [f"{model} {seed}", f"damaged ({error})", *[MISSING] * (len(HEAD) - 2)]


def row(folder: Path) -> list[str]:
    """The run in ``folder`` as a line below :data:`HEAD`: training loss now, best validation loss."""
    trained = read_history(folder, "train")
    valid = [row["loss_bits"] for row in read_history(folder, "valid") if row.get("loss_bits") is not None]
    updates = _planned_updates(folder / CONFIG)
    status = _status(folder)
    left = seconds_left(trained, updates) if status == "running" else None
    return [
        f"{folder.parent.name} {folder.name.partition('-')[0]}",
        status,
        f"{trained[-1]['update']}/{updates}" if trained else MISSING,
        number(trained[-1].get("loss_bits") if trained else None, 3),
        number(min(valid, default=None), 3),
        MISSING if left is None else duration(left),
    ]


def _planned_updates(path: Path) -> int:
    try:
        return yaml.safe_load(path.read_bytes())["fairseq"]["optimization"]["max_update"]
    except (yaml.YAMLError, KeyError, TypeError):
        raise UsageError(f"{path} is no configuration of a run: restore it, or run again") from None


def _status(folder: Path) -> str:
    """That of :func:`last_record`; before there is one, how its worker ended."""
    if (record := last_record(folder)) is not None:
        return record["status"]
    outcome = read_outcome(folder)  # removed when it is started again
    if outcome is not None and outcome["status"] != "finished":
        return outcome["status"]
    quiet = time.time() - max(_changed(folder / CONFIG), _changed(folder / HISTORY))
    return "running" if quiet < SILENT else f"silent for {duration(quiet)}"


def last_record(folder: Path) -> Record | None:
    """The run's record; None before there is one, and while a run that was lost is tried again."""
    begun_here = (folder / CONFIG).is_file()
    ended = (folder / RECORD).is_file() if begun_here else archives.is_file(folder / RECORD)
    return read_record(folder) if ended else None


def _changed(path: Path) -> float:
    return path.stat().st_mtime if path.is_file() else 0.0


def seconds_left(trained: Sequence[dict[str, Any]], updates: int) -> float | None:
    """Training seconds of the updates that are left, at the median pace of the last rows, so that a pause is no pace;
    None before there is a row, and where rows are so short that their seconds, which fairseq rounds, are none.

    Each row's ``train_seconds`` are those since the row before, of the first since training began: with compilation, so
    that row counts only where it is alone.
    """
    recent = trained[-10:] if len(trained) > 1 else [{"update": 0}, *trained]
    steps = [(row["update"] - before["update"], row.get("train_seconds") or 0.0) for before, row in pairwise(recent)]
    paces = [seconds / done for done, seconds in steps if done > 0]
    if not paces:
        return None
    pace, left = median(paces) or fmean(paces), updates - recent[-1]["update"]
    return pace * left if pace or not left else None


class Progress:
    """Of the run in ``folder``, called ``title``, with ``max_update`` updates; :meth:`look` now and then."""

    def __init__(self, folder: Path, title: str, max_update: int) -> None:
        self.folder, self.title, self.max_update = folder, title, max_update
        self.read, self.printed, self.said = self._size(), -PRINT_EVERY, -1

    def _size(self) -> int:
        history = self.folder / HISTORY
        return history.stat().st_size if history.is_file() else 0

    def look(self) -> bool:
        """Say on stderr how far it is, at most every ten seconds, where there is something new to say; returns whether
        there was. A terminal that is gone, or a disk that fails for a moment, is no reason to end what is told of."""
        with contextlib.suppress(OSError):
            return self._look()
        return False

    def _look(self) -> bool:
        if (size := self._size()) == self.read:
            return False
        self.read = size
        trained = read_history(self.folder, "train")
        update = trained[-1]["update"] if trained else 0
        too_soon = time.monotonic() - self.printed < PRINT_EVERY and update < self.max_update
        if not trained or update == self.said or too_soon:
            return False
        self.printed, self.said = time.monotonic(), update
        parts = [f"{self.title}: update {update}/{self.max_update}"]
        if trained[-1].get("token_perplexity") is not None:
            parts.append(f"token perplexity {trained[-1]['token_perplexity']:.1f}")
        if trained[-1].get("tokens_per_second"):
            parts.append(f"{trained[-1]['tokens_per_second']:,.0f} tokens/s")
        left = seconds_left(trained, self.max_update)
        parts.append("time left unknown" if left is None else f"{duration(left)} left")
        print(" | ".join(parts), file=sys.stderr, flush=True)
        return True
