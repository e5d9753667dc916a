"""fairseq's progress bar, replaced: the history of a run goes to ``metrics.jsonl``, and a person sees the time left."""

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401

from fairseq.logging.meters import AverageMeter, StopwatchMeter, TimeMeter
from fairseq.logging.progress_bar import BaseProgressBar

from gpam_suite.common.formatting import duration
from gpam_suite.records.folder import append_history

_NAMES = {
    "loss": "loss_bits",
    "nll_loss": "nll_bits",
    "ppl": "token_perplexity",
    "lr": "learning_rate",
    "gnorm": "gradient_norm",
    "wps": "tokens_per_second",
    "train_wall": "train_seconds",
    "bleu": "bleu",
    "accuracy": "accuracy",
}
"""fairseq's names of what it logs, and ours. fairseq's losses are in bits."""
PRINT_EVERY = 10.0  # seconds between two lines


class Progress:
    """What the bars of all epochs of one run share."""

    def __init__(self, folder: Path, title: str, max_update: int) -> None:
        self.folder, self.title, self.max_update = folder, title, max_update
        self.started: tuple[float, int] | None = None
        self.printed = 0.0

    def bar(self, iterable: Any, epoch: int | None = None, prefix: str | None = None, **_: Any) -> "HistoryBar":
        """Takes the place of ``fairseq.logging.progress_bar.progress_bar``."""
        return HistoryBar(self, iterable, epoch, prefix)

    def show(self, update: int, row: dict[str, Any]) -> None:
        """One line on stderr, at most every ten seconds: update, loss, speed and time left."""
        now = time.monotonic()
        if self.started is None:
            self.started = (now, update)
        if now - self.printed < PRINT_EVERY and update < self.max_update:
            return
        self.printed = now
        began, first = self.started
        left = (now - began) / (update - first) * (self.max_update - update) if update > first else None
        parts = [f"{self.title}: update {update}/{self.max_update}"]
        if row.get("token_perplexity") is not None:
            parts.append(f"token perplexity {row['token_perplexity']:.1f}")
        if row.get("tokens_per_second"):
            parts.append(f"{row['tokens_per_second']:,.0f} tokens/s")
        parts.append(f"{duration(left)} left" if left is not None else "time left unknown")
        print(" | ".join(parts), file=sys.stderr, flush=True)


class HistoryBar(BaseProgressBar):
    """Writes each log of fairseq's as a row of the history."""

    def __init__(self, progress: Progress, iterable: Any, epoch: int | None, prefix: str | None) -> None:
        super().__init__(iterable, epoch, prefix)
        self.progress = progress

    def __iter__(self) -> Iterator[Any]:
        yield from self.iterable

    def log(self, stats: dict[str, Any], tag: str | None = None, step: int | None = None) -> None:
        self._write(stats, "train", step)

    def print(self, stats: dict[str, Any], tag: str | None = None, step: int | None = None) -> None:
        if tag != "train":  # the end of an epoch repeats what was logged
            self._write(stats, tag, step)

    def _write(self, stats: dict[str, Any], split: str | None, step: int | None) -> None:
        row: dict[str, Any] = {"update": step, "split": split, "epoch": self.epoch}
        for name, value in stats.items():
            if name in _NAMES:
                row[_NAMES[name]] = _number(value)
        append_history(self.progress.folder, row)
        if split == "train":
            self.progress.show(step or 0, row)


class SilentBar(BaseProgressBar):
    """For the processes of a run that are not the first."""

    def __iter__(self) -> Iterator[Any]:
        yield from self.iterable

    def log(self, *_: Any, **__: Any) -> None:
        """Nothing: the first process writes what all of them found."""

    print = log


def silent_bar(iterable: Any, epoch: int | None = None, prefix: str | None = None, **_: Any) -> SilentBar:
    """Takes the place of ``fairseq.logging.progress_bar.progress_bar`` where nothing is to be written."""
    return SilentBar(iterable, epoch, prefix)


def _number(value: Any) -> float | None:
    if isinstance(value, AverageMeter | TimeMeter):
        value = value.avg
    elif isinstance(value, StopwatchMeter):
        value = value.sum
    number = float(value)
    return number if math.isfinite(number) else None
