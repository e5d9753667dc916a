"""Names in a run's folder, and where fairseq reads and writes for it."""

from pathlib import Path

from omegaconf import DictConfig

from gpam_suite.data import Prepared

CONFIG, CHECKPOINTS, OUTCOME, WORKER_LOG = "config.yaml", "checkpoints", "outcome.json", "train.log"
TRAINED = "trained"  # an empty file beside the checkpoints: training has come to its end
DIVERGED_EXIT = 3
CHECK_EVERY = "GPAM_CHECK_ATTENTION_EVERY"
"""Environment variable of the worker: updates between two checks of attention's invariants; 0 (the default): none."""


def place(fairseq_config: DictConfig, folder: Path, prepared: Prepared) -> None:
    """Fill data and checkpoint folders, and the languages, into a complete fairseq configuration."""
    fairseq_config.task.data = str(prepared.bin)
    if prepared.task == "nmt":
        fairseq_config.task.source_lang = prepared.source_lang
        fairseq_config.task.target_lang = prepared.target_lang
    fairseq_config.checkpoint.save_dir = str(folder / CHECKPOINTS)


def rank_log(folder: Path, rank: int) -> Path:
    """What process ``rank`` of several says; the first one's is :data:`WORKER_LOG`."""
    return folder / f"train-rank{rank}.log"
