"""Learning curves over seeds, from the histories of the runs."""

from dataclasses import dataclass

import numpy as np

from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record, read_history
from gpam_suite.stats.aggregate import Row

QUANTITIES = {"token_perplexity": "perplexity per", "loss_bits": "loss in bits per"}
"""What a curve can show, by its key in the history: the first one that was logged."""


def title(quantity: str, task: str) -> str:
    """``Validation perplexity per token``; recall is scored on its answers alone."""
    return f"Validation {QUANTITIES[quantity]} {scored(task)}"


def scored(task: str) -> str:
    """What the loss is a mean over."""
    return TASKS[task].scored


@dataclass(frozen=True)
class Curve:
    """``mean``, ``low`` and ``high`` (range over seeds) of a validation quantity at ``updates``."""

    quantity: str
    updates: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def after(self, start: float) -> "Curve":
        """The part from update ``start`` on."""
        kept = self.updates >= start
        return Curve(self.quantity, self.updates[kept], self.mean[kept], self.low[kept], self.high[kept])


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
            values = np.array([[points[update] for update in shared] for points in seeds])
            return Curve(quantity, np.array(shared), values.mean(axis=0), values.min(axis=0), values.max(axis=0))
    return None
