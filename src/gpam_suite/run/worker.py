"""The process of one run: ``python -m gpam_suite.run.worker RUN_FOLDER DATA_FOLDER`` trains and evaluates.

Of several processes (:mod:`gpam_suite.run.processes`) each trains, and the first writes and evaluates.

A process of its own, since fairseq keeps the best score, meters and log handlers in globals, and so that a crash of
one run leaves the others alone. What it found out, or why it ended, is in ``outcome.json``, written at the end.
"""

import contextlib
import json
import logging
import os
import resource
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)
from gpam_fairseq.trainer import products
from gpam_fairseq.trainer.checkpoints import exact_checkpoints, saves_before_stopping
from gpam_fairseq.trainer.divergence import Diverged, located_divergence, not_finite
from gpam_fairseq.trainer.histories import histories
from gpam_fairseq.trainer.invariants import Violated, checked_attention
from gpam_fairseq.trainer.progress import HistoryBar
from gpam_fairseq.trainer.replacing import replaced

import torch
from omegaconf import DictConfig, OmegaConf

from gpam.attention.backends import calibration
from gpam.errors import UsageError
from gpam_suite.common.failures import to_mend
from gpam_suite.common.files import write_atomically
from gpam_suite.common.stopping import STOPPED_EXIT, Preempted, stop_now, when_stopped
from gpam_suite.common.strict_json import LARGEST
from gpam_suite.common.tasks import TASKS
from gpam_suite.config.compose import fast
from gpam_suite.config.device_batches import devices, share
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.config.identity import CONFIG
from gpam_suite.data import Prepared
from gpam_suite.data.prepared import fill_paths
from gpam_suite.evaluate.checkpoint import load_model, read_checkpoint
from gpam_suite.evaluate.score import evaluate
from gpam_suite.evaluate.trained import checkpoint_of, checksums, exact_float32
from gpam_suite.records.lines import append_history, cut_history
from gpam_suite.run.counts import count_parameters, lengths, train_flops_per_token
from gpam_suite.run.outcomes import CHECK_EVERY, DIVERGED_EXIT, REFUSED_EXIT, TRAINED, outcome_file
from gpam_suite.run.processes import place_of, rank


def main(folder: Path, data: Path) -> None:
    cfg = OmegaConf.load(folder / CONFIG)
    prepared = Prepared.load(data)
    prepared.check_whole()
    torch.set_num_threads(cfg.gpu.threads)
    exact_float32()
    own = fairseq_config(cfg)
    fill_paths(own, folder, prepared)
    own.common.no_progress_bar = True
    if "use_old_adam" in own.optimizer:
        own.optimizer.use_old_adam = True  # else fairseq takes apex's where that is installed, and no record would show
    _distribute(own, cfg)
    last = checkpoint_of(folder, "last")
    done = _updates(read_checkpoint(last)) if last.is_file() else 0
    if fast(cfg):
        calibration.keep(folder, resumed=done > 0, write=rank() == 0)
    else:
        calibration.use(calibration.PLAIN)
    if trains := not _is_trained(own, done):
        if rank() == 0:
            cut_history(folder, done)
        _train(own, folder, fast(cfg))
    peak = torch.cuda.max_memory_allocated()  # of the training alone; 0 without a GPU
    if rank() > 0:
        return
    evaluated_from = time.monotonic()

    from gpam_fairseq.install import attention_classes

    from fairseq import tasks

    task = tasks.setup_task(own.task)
    trained = read_checkpoint(last)
    if name := not_finite(trained["model"]):
        raise Diverged(f"update {_updates(trained)}: parameter {name} is not finite behind it, the last one")
    best = checkpoint_of(folder, cfg.evaluation.checkpoint)
    model = load_model(best, own, task)
    metrics, protocol = evaluate(model, task, prepared, cfg.evaluation, folder)
    headline = TASKS[prepared.task].headline
    if not metrics[headline] <= LARGEST:
        raise Diverged(f"update {_updates(trained)}: {headline} is {metrics[headline]}")
    process_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # the training's cannot be read apart
    outcome = {
        "status": "finished",
        "metrics": metrics,
        "protocol": protocol,
        "parameters": count_parameters(model),
        "flops": {
            "train_per_token": train_flops_per_token(model, *lengths(prepared, own.task.get("tokens_per_sample")))
        },
        "attention_modules": attention_classes(model),
        "updates": _updates(trained),
        "train_seconds": float(trained["extra_state"]["previous_training_time"]),
        "evaluate_seconds": time.monotonic() - evaluated_from,
        "peak_bytes": (peak or process_peak) if trains else None,  # an evaluation's would be no training's
        "fast_products": products.state().told,
        "attention_backends": str(calibration.current()),
        "checksums": checksums(prepared, best, folder),
    }
    write_atomically(outcome_file(folder), json.dumps(outcome))


def _distribute(own: DictConfig, cfg: DictConfig) -> None:
    """Fill this process's place among several into fairseq's complete configuration ``own``: its rank, its share of the
    batch, and what it talks with.

    Processes talk by gloo on processors and by NCCL on GPUs. Gradients are summed by fairseq's ``legacy_ddp``, which
    takes CPU modules, parameters without a gradient, and every criterion.
    """
    count, place = devices(cfg), place_of()
    if place is None:
        own.distributed_training.distributed_world_size = 1  # fairseq's own default is every GPU that is visible
        for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"):  # of a torchrun, which fairseq would join
            os.environ.pop(name, None)
        return
    os.environ.update(place.variables())
    share(own, count)
    cpu = own.common.cpu
    own.distributed_training.update(
        distributed_world_size=place.world,
        distributed_rank=place.rank,
        distributed_init_method="env://",
        distributed_backend="gloo" if cpu else "nccl",
        distributed_no_spawn=True,  # this is one of the processes
        device_id=0 if cpu else place.local % max(torch.cuda.device_count(), 1),  # SLURM may show each its own GPU only
        ddp_backend="legacy_ddp",
    )
    own.checkpoint.load_checkpoint_on_all_dp_ranks = True  # fairseq's broadcast needs to unpickle a class of its own


def _updates(checkpoint: dict[str, Any]) -> int:
    """How many a checkpoint has behind it."""
    return checkpoint["optimizer_history"][-1]["num_updates"]


def _is_trained(own: DictConfig, done: int) -> bool:
    """Whether nothing is left to train; early stopping and its like leave a mark, as ``done`` does not tell."""
    marked = (Path(own.checkpoint.save_dir) / TRAINED).exists()
    return done >= own.optimization.max_update or (done > 0 and marked)


def _train(own: DictConfig, folder: Path, with_fast_step: bool) -> None:
    from gpam_fairseq.config import attention_and_options
    from gpam_fairseq.install import check_attention
    from gpam_fairseq.trainer.fast import fast_step

    from fairseq.distributed import utils as distributed_utils
    from fairseq.trainer import Trainer
    from fairseq_cli import train as fairseq_train

    stock_init = Trainer.__init__

    def init_checked(trainer: Any, cfg: Any, task: Any, model: torch.nn.Module, *args: Any, **kwargs: Any) -> None:
        check_attention(model, *attention_and_options(own.model))  # here, as not every task builds by FairseqTask's way
        stock_init(trainer, cfg, task, model, *args, **kwargs)

    write = partial(append_history, folder)
    first, asked, mark = rank() == 0, threading.Event(), Path(own.checkpoint.save_dir) / TRAINED
    if first:
        mark.unlink(missing_ok=True)  # of a training whose checkpoints were deleted
    with (
        replaced(Trainer, __init__=init_checked),
        replaced(fairseq_train.progress_bar, progress_bar=partial(HistoryBar, write if first else lambda _: None)),
        exact_checkpoints(Path(own.checkpoint.save_dir)),
        when_stopped(asked.set if first else lambda: None),
        saves_before_stopping(asked, stop_now),
        located_divergence(),
        replaced(torch.cuda, reset_peak_memory_stats=lambda *_: None),  # fairseq would, after every update
        checked_attention(int(os.environ.get(CHECK_EVERY, "0"))),
        histories(write, own.common.log_interval),
        fast_step() if with_fast_step else contextlib.nullcontext(),
    ):
        distributed_utils.call_main(own, fairseq_train.main)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if first:
        write_atomically(mark, "")
    if asked.is_set():
        stop_now("training has come to its end, and was saved")


def _ended(folder: Path, status: str, reason: BaseException | str, code: int) -> int:
    """Tell a person on stderr, and the process that started this one in a file, where there is room for one."""
    print(reason, file=sys.stderr)
    with contextlib.suppress(OSError):
        write_atomically(outcome_file(folder, rank()), json.dumps({"status": status, "reason": str(reason)}))
    return code


def work(folder: Path, data: Path) -> int:
    """:func:`main`, with every end that has a name in ``outcome.json``; returns the exit code."""
    try:
        with when_stopped(stop_now if rank() == 0 else lambda: None):  # the first process says when all of them stop
            main(folder, data)
    except Preempted as end:
        return _ended(folder, "stopped", end, STOPPED_EXIT)
    except Diverged as end:
        return _ended(folder, "diverged", end, DIVERGED_EXIT)
    except Violated as end:
        return _ended(folder, "failed", end, 1)
    except UsageError as end:
        return _ended(folder, "refused", end, REFUSED_EXIT)
    except Exception as error:
        if (sentence := to_mend(error)) is None:
            raise
        return _ended(folder, "refused", sentence, REFUSED_EXIT)
    return 0


if __name__ == "__main__":
    logging.getLogger("fairseq").setLevel(logging.INFO)
    sys.exit(work(Path(sys.argv[1]), Path(sys.argv[2])))
