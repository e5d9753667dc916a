"""How far a run is, for the person who waits for it: read from the history that its worker writes."""

import sys
import time
from pathlib import Path

from gpam_suite.common.formatting import duration
from gpam_suite.records.folder import HISTORY, read_history
from gpam_suite.run.members import seconds_left

PRINT_EVERY = 10.0  # seconds between two lines


class Progress:
    """Of the run in ``folder``, called ``title``, with ``max_update`` updates; :meth:`look` now and then."""

    def __init__(self, folder: Path, title: str, max_update: int) -> None:
        self.folder, self.title, self.max_update = folder, title, max_update
        self.read, self.printed, self.said = self._size(), 0.0, -1

    def _size(self) -> int:
        history = self.folder / HISTORY
        return history.stat().st_size if history.is_file() else 0

    def look(self) -> bool:
        """Say on stderr how far it is, at most every ten seconds, where there is something new to say; returns whether
        there was."""
        if (size := self._size()) == self.read:
            return False
        self.read = size
        trained = [row for row in read_history(self.folder) if row.get("split") == "train"]
        update = trained[-1].get("update") or 0 if trained else 0
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
