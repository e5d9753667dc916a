"""Learning curves over seeds, from the histories of the runs."""

from typing import NamedTuple

import numpy as np

from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record, read_history
from gpam_suite.stats.aggregate import Row

QUANTITIES = {"token_perplexity": "perplexity per", "loss_bits": "loss in bits per"}
"""What a curve can show, by its key in the history: the first one that was logged."""


def title(quantity: str, task: str) -> str:
    """``Validation perplexity per token``; recall is scored on its answers alone."""
    return f"Validation {QUANTITIES[quantity]} {TASKS[task].scored}"


class Curve(NamedTuple):
    """A validation quantity at ``updates``: ``values`` [seeds, updates]."""

    quantity: str
    updates: np.ndarray
    values: np.ndarray

    def after(self, start: float) -> "Curve":
        """The part from update ``start`` on."""
        kept = self.updates >= start
        return Curve(self.quantity, self.updates[kept], self.values[:, kept])


def validation(record: Record, quantity: str) -> dict[int, float]:
    """Update to a quantity of :data:`QUANTITIES`; where a resumed run came by an update twice, the later row counts."""
    return {
        row["update"]: row[quantity]
        for row in read_history(record.folder)
        if row.get("split") == "valid" and row.get(quantity) is not None
    }


def learning_curve(row: Row) -> Curve | None:
    """The curve over the finished seeds, at the updates all of them validated at; None below two such updates."""
    for quantity in QUANTITIES:
        seeds = [validation(record, quantity) for record in row.finished]
        shared = sorted(set.intersection(*map(set, seeds))) if seeds else []
        if len(shared) > 1:
            return Curve(quantity, np.array(shared), np.array([[one[update] for update in shared] for one in seeds]))
    return None


class Fall(NamedTuple):
    """What a row's curve did between the last two ``updates``, and by how much another row ends above it."""

    updates: list[int]
    fall: float
    share: float
    difference: float


def last_fall(row: Row, other: Row) -> Fall:
    """Of the means over seeds of two rows that have curves; ``share`` is that of the value before the fall."""
    ours, theirs = learning_curve(row), learning_curve(other)
    before, last = ours.values.mean(axis=0)[-2:].tolist()
    end = float(theirs.values.mean(axis=0)[-1])
    return Fall(ours.updates[-2:].tolist(), before - last, (before - last) / before, end - last)
