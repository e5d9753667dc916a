"""The process of one run: ``python -m gpam_suite.training.worker RUN_FOLDER DATA_FOLDER`` trains and evaluates.

A process of its own, since fairseq keeps the best score, meters and log handlers in globals, and so that a crash of
one run leaves the others alone. What it found out is in ``outcome.json``, written at the end.
"""

import json
import logging
import resource
import sys
import time
from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import torch
from omegaconf import DictConfig, OmegaConf

from gpam_suite.configuration import fairseq_config
from gpam_suite.data import Prepared
from gpam_suite.evaluation.checkpoint import load_model, read_checkpoint
from gpam_suite.evaluation.evaluate import evaluate
from gpam_suite.records import write_atomically
from gpam_suite.training.flops import lengths, train_flops_per_token
from gpam_suite.training.histories import histories
from gpam_suite.training.parameters import count_parameters
from gpam_suite.training.place import CONFIG, DIVERGED_EXIT, OUTCOME, place
from gpam_suite.training.progress import Progress


class Diverged(Exception):
    """The loss stopped being a number."""


def main(folder: Path, data: Path) -> None:
    cfg = OmegaConf.load(folder / CONFIG)
    prepared = Prepared.load(data)
    torch.set_num_threads(cfg.gpu.threads)
    own = fairseq_config(cfg)
    place(own, folder, prepared)
    own.common.no_progress_bar = True
    if not _is_trained(own):
        _train(own, folder, f"{cfg.model.name} {cfg.dataset.name} seed {cfg.seed}")
    trained = time.monotonic()

    from gpam_fairseq.install import attention_classes

    from fairseq import tasks

    task = tasks.setup_task(own.task)
    best = Path(own.checkpoint.save_dir) / f"checkpoint_{cfg.evaluation.checkpoint}.pt"
    model = load_model(best, own, task)
    metrics, protocol = evaluate(model, task, prepared, cfg.evaluation, folder)
    last = read_checkpoint(Path(own.checkpoint.save_dir) / "checkpoint_last.pt")
    outcome = {
        "metrics": metrics,
        "protocol": protocol,
        "parameters": count_parameters(model),
        "flops": {
            "train_per_token": train_flops_per_token(model, *lengths(prepared, own.task.get("tokens_per_sample")))
        },
        "attention_modules": attention_classes(model),
        "updates": last["optimizer_history"][-1]["num_updates"],
        "train_seconds": last["extra_state"]["previous_training_time"],
        "evaluate_seconds": time.monotonic() - trained,
        "peak_bytes": _peak_bytes(),
        "world_size": own.distributed_training.distributed_world_size,
    }
    write_atomically(folder / OUTCOME, json.dumps(outcome))


def _is_trained(own: DictConfig) -> bool:
    last = Path(own.checkpoint.save_dir) / "checkpoint_last.pt"
    if not last.is_file():
        return False
    done = read_checkpoint(last)["optimizer_history"][-1]["num_updates"]
    return done >= own.optimization.max_update


def _train(own: DictConfig, folder: Path, title: str) -> None:
    from gpam_fairseq.config import attention_and_options
    from gpam_fairseq.install import check_attention

    from fairseq.distributed import utils as distributed_utils
    from fairseq.tasks.fairseq_task import FairseqTask
    from fairseq_cli import train as fairseq_train

    stock_build = FairseqTask.build_model

    def build_checked(task: Any, *args: Any, **kwargs: Any) -> torch.nn.Module:
        model = stock_build(task, *args, **kwargs)
        check_attention(model, *attention_and_options(own.model))
        return model

    FairseqTask.build_model = build_checked
    progress = Progress(folder, title, own.optimization.max_update)
    fairseq_train.progress_bar.progress_bar = progress.bar
    try:
        with histories(folder, own.common.log_interval):
            distributed_utils.call_main(own, fairseq_train.main)
    except FloatingPointError as error:
        raise Diverged(str(error)) from None
    finally:
        FairseqTask.build_model = stock_build


def _peak_bytes() -> int:
    """Peak memory of the GPU where one was used, else of this process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    logging.getLogger("fairseq").setLevel(logging.INFO)
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except Diverged as diverged:
        print(diverged, file=sys.stderr)
        sys.exit(DIVERGED_EXIT)
