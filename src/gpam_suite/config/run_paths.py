"""Names in a run's folder."""

from pathlib import Path

CONFIG, CHECKPOINTS, OUTCOME, WORKER_LOG = "config.yaml", "checkpoints", "outcome.json", "train.log"
BACKENDS = "backends.json"  # what attention's backends are chosen by, from the first start on
TRAINED = "trained"  # an empty file beside the checkpoints: training has come to its end
DIVERGED_EXIT = 3
CHECK_EVERY = "GPAM_CHECK_ATTENTION_EVERY"
"""Environment variable of the worker: updates between two checks of attention's invariants; 0 (the default): none."""


def rank_log(folder: Path, rank: int) -> Path:
    """What process ``rank`` of several says; the first one's is :data:`WORKER_LOG`."""
    return folder / f"train-rank{rank}.log"
