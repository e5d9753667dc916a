"""What a run and its worker say to each other, by files of the run's folder and exit codes; and how a run fails."""

import json
from pathlib import Path
from typing import Any

OUTCOME, WORKER_LOG = "outcome.json", "train.log"
BEGUN = "begun.json"  # the checksum of the text and the commit that its training began with
TRAINED = "trained"  # an empty file beside the checkpoints: training has come to its end
REFUSED_EXIT, DIVERGED_EXIT = 2, 3  # of a worker
CHECK_EVERY = "GPAM_CHECK_ATTENTION_EVERY"
"""Environment variable of the worker: updates between two checks of attention's invariants; 0 (the default): none."""


class RunFailed(Exception):
    """A run ended without a result; its record says why."""


class RunDiverged(RunFailed):
    """It would do so again."""


def rank_log(folder: Path, rank: int) -> Path:
    """What process ``rank`` says."""
    return folder / (WORKER_LOG if rank == 0 else f"train-rank{rank}.log")


def outcome_file(folder: Path, rank: int = 0) -> Path:
    """Where process ``rank`` says how it ended: ``status``, ``reason``, and all that was found where it finished."""
    return folder / (OUTCOME if rank == 0 else f"outcome-rank{rank}.json")


def read_outcome(folder: Path, rank: int = 0) -> dict[str, Any] | None:
    """What :func:`outcome_file` says; None where it is not there, or damaged."""
    path = outcome_file(folder, rank)
    try:
        found = json.loads(path.read_bytes()) if path.is_file() else None
    except ValueError:
        return None
    return found if isinstance(found, dict) and "status" in found else None
