"""How far a run is, for the person who waits for it: read from the history that its worker writes."""

import json
import sys
import time
from pathlib import Path
from typing import Any

from gpam_suite.common.formatting import duration
from gpam_suite.records.folder import HISTORY

PRINT_EVERY = 10.0  # seconds between two lines


class Progress:
    """Of the run in ``folder``, called ``title``, with ``max_update`` updates; :meth:`look` now and then."""

    def __init__(self, folder: Path, title: str, max_update: int) -> None:
        self.history, self.title, self.max_update = folder / HISTORY, title, max_update
        self.seen = self._size()
        self.started: tuple[float, int] | None = None
        self.printed = 0.0

    def _size(self) -> int:
        return self.history.stat().st_size if self.history.is_file() else 0

    def look(self) -> bool:
        """Read what is new, and say the last of it at most every ten seconds; returns whether something was said."""
        self.seen = min(self.seen, self._size())  # rows behind the checkpoint that a run goes on from are cut off
        if self._size() == self.seen:
            return False
        with self.history.open("rb") as file:
            file.seek(self.seen)
            whole, _, _ = file.read().rpartition(b"\n")  # the last row may be half written
        self.seen += len(whole) + bool(whole)
        rows = [json.loads(line) for line in whole.split(b"\n") if line]
        trained = [row for row in rows if row.get("split") == "train"]
        return bool(trained) and self._show(trained[-1].get("update") or 0, trained[-1])

    def _show(self, update: int, row: dict[str, Any]) -> bool:
        """One line on stderr: update, loss, speed and time left."""
        now = time.monotonic()
        if self.started is None:
            self.started = (now, update)
        if now - self.printed < PRINT_EVERY and update < self.max_update:
            return False
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
        return True
