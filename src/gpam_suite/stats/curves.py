"""Learning curves over seeds, from the histories of the runs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record, read_history
from gpam_suite.records.history_rows import best_validation
from gpam_suite.stats.aggregate import Row


def title(task: str) -> str:
    """``Validation perplexity per token``; recall is scored on its answers alone."""
    return f"Validation perplexity per {TASKS[task].scored}"


class Curve(NamedTuple):
    """Validation perplexity at ``updates``: ``values`` [seeds, updates]."""

    updates: np.ndarray
    values: np.ndarray


def validation(record: Record) -> dict[int, float]:
    """Update to validation perplexity per token, label smoothing left out; where a resumed run came by an update twice,
    the later row counts."""
    rows = read_history(record.folder, "valid")
    return {row["update"]: found for row in rows if (found := perplexity(row)) is not None}


def perplexity(row: Mapping[str, Any]) -> float | None:
    """Per token, of a validation. fairseq rounds perplexity to two decimals, and the bits that it logs beside label
    smoothing to three: where there are both, the middle of what both allow."""
    logged, bits = row.get("token_perplexity"), row.get("nll_bits")
    if logged is None or bits is None:
        return logged
    least = max(logged - 0.005, 2 ** (bits - 0.0005))
    return (least + min(logged + 0.005, 2 ** (bits + 0.0005))) / 2


def scored_update(record: Record) -> int | None:
    """The update whose checkpoint is scored; None of a run that was lost, or where no validation is known."""
    if record["status"] != "finished":
        return None
    if record.at("protocol", "checkpoint") == "last":
        return record["updates"]
    best = best_validation(read_history(record.folder, "valid"))
    return None if best is None else best["update"]


def learning_curve(row: Row) -> Curve | None:
    """The curve over the finished seeds, at the updates all of them validated at; None below two such updates."""
    seeds = [validation(record) for record in row.finished]
    shared = sorted(set.intersection(*map(set, seeds))) if seeds else []
    if len(shared) < 2:
        return None
    return Curve(np.array(shared), np.array([[one[update] for update in shared] for one in seeds]))
