"""fairseq's progress bar, replaced: what it logs is a row of the run's history."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from fairseq.logging.meters import AverageMeter, StopwatchMeter, TimeMeter
from fairseq.logging.progress_bar import BaseProgressBar

Write = Callable[[dict[str, Any]], Any]
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


class HistoryBar(BaseProgressBar):
    """In the place of ``fairseq.logging.progress_bar.progress_bar``: gives each log to ``write`` as a row."""

    def __init__(self, write: Write, iterable: Any, epoch: int | None = None, **_: Any) -> None:
        super().__init__(iterable, epoch)
        self.write = write

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
        self.write(row)


def _number(value: Any) -> float | None:
    if isinstance(value, AverageMeter | TimeMeter):
        value = value.avg
    elif isinstance(value, StopwatchMeter):
        value = value.sum
    number = float(value)
    return number if math.isfinite(number) else None
