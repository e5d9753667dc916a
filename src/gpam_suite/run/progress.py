"""The history of a run, row by row, and what a person sees of it: the time left."""

import sys
import time
from pathlib import Path
from typing import Any

from gpam_suite.common.formatting import duration
from gpam_suite.records.folder import append_history

PRINT_EVERY = 10.0  # seconds between two lines


class Progress:
    """Of one run in ``folder``, called ``title``, with ``max_update`` updates."""

    def __init__(self, folder: Path, title: str, max_update: int) -> None:
        self.folder, self.title, self.max_update = folder, title, max_update
        self.started: tuple[float, int] | None = None
        self.printed = 0.0

    def write(self, row: dict[str, Any]) -> None:
        """Append ``row`` to the history."""
        append_history(self.folder, row)
        if row["split"] == "train":
            self.show(row["update"] or 0, row)

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
