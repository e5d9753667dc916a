"""fairseq's checkpoint files, each there whole or not at all, and what fairseq leaves out of them.

fairseq copies a checkpoint to its other names byte by byte, and writes on behind a write that failed: a process killed
in that moment, or a full disk, leaves half a ``checkpoint_last.pt``. It forgets how long it has been waiting for a
better validation score, at the start of an epoch what it has summed up since the last row of the history, and in half
precision the float32 parameters that it trains. And it takes time by the clock on the wall, which somebody may set
back. That is replaced here, and nothing of how it trains.
"""

import contextlib
import os
import shutil
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpam_fairseq.trainer.replacing import replaced

import torch

_EXTRA = "gpam_suite"  # our part of a checkpoint's extra_state


@contextlib.contextmanager
def exact_checkpoints(save_dir: Path) -> Iterator[None]:
    """While this holds, fairseq's trainer saves and takes up its state as said above.

    What killed processes left unfinished in ``save_dir`` is removed first.
    """
    from fairseq import checkpoint_utils, trainer
    from fairseq_cli.train import should_stop_early

    for unfinished in save_dir.glob("*.tmp"):
        unfinished.unlink(missing_ok=True)

    class WholeFiles(checkpoint_utils.PathManager):
        copy = staticmethod(_copy)

    kind = trainer.Trainer
    state_dict = _remembering(kind.state_dict, should_stop_early)
    load_checkpoint = _recalling(kind.load_checkpoint, should_stop_early)
    vars(should_stop_early).clear()
    vars(checkpoint_utils.save_checkpoint).clear()  # the best score of an earlier run in this process
    with (
        replaced(checkpoint_utils, PathManager=WholeFiles, torch_persistent_save=_save),
        replaced(trainer, time=types.SimpleNamespace(time=time.monotonic)),
        replaced(kind, state_dict=state_dict, load_checkpoint=load_checkpoint),
    ):
        yield


def _save(state: Any, filename: str, async_write: bool = False) -> None:
    """Takes the place of ``torch_persistent_save``."""
    temporary = f"{filename}.tmp"
    try:
        with open(temporary, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, filename)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _copy(source: str, target: str, overwrite: bool = False) -> bool:
    """Takes the place of ``PathManager.copy``: checkpoints are never changed in place, so another name will do."""
    temporary = Path(f"{target}.tmp")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without links
        shutil.copyfile(source, temporary)
    os.replace(temporary, target)
    return True


def _remembering(stock: Any, should_stop_early: Any) -> Any:
    def state_dict(trainer: Any) -> dict[str, Any]:
        state = stock(trainer)
        kept = {"early_stop": dict(vars(should_stop_early))}
        if copies := _float32_copies(trainer):
            kept |= {"float32": copies, "scaler": _counts(trainer)}
        state["extra_state"][_EXTRA] = kept
        return state

    return state_dict


def _float32_copies(trainer: Any) -> list[torch.Tensor]:
    """In half precision the parameters that are trained; fairseq's checkpoints have the rounded ones alone."""
    copies = getattr(trainer.optimizer, "fp32_params", [])
    return [copy.data for copy in (copies.values() if isinstance(copies, dict) else copies)]


def _counts(trainer: Any) -> dict[str, Any]:
    """In float16 what the scale of the loss is next changed by; fairseq's checkpoints have the scale alone."""
    scaler = getattr(trainer.optimizer, "scaler", None)
    return {} if scaler is None else {name: own for name, own in vars(scaler).items() if name.startswith("_")}


def _recalling(stock: Any, should_stop_early: Any) -> Any:
    from fairseq.logging import meters, metrics

    def load_checkpoint(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        extra = stock(trainer, *args, **kwargs)
        if extra is None:
            return None
        kept = extra.get(_EXTRA, {})
        copies, saved = _float32_copies(trainer), kept.pop("float32", [])
        if [copy.shape for copy in copies] == [copy.shape for copy in saved]:  # else another precision goes on
            for copy, own in zip(copies, saved, strict=True):
                copy.copy_(own)
        if kwargs.get("reset_meters"):  # the checkpoint is of another training, whose end and time were others
            trainer._previous_training_time = 0
            return extra
        vars(should_stop_early).update(kept.get("early_stop", {}))
        if _counts(trainer):
            vars(trainer.optimizer.scaler).update(kept.get("scaler", {}))
        if extra["train_iterator"].get("iterations_in_epoch") == 0 and "metrics" in extra:
            metrics.load_state_dict(extra["metrics"])
            metrics.reset_meters("train")  # the meters of the epoch that has ended
            for meter in metrics.get_meters("default").values():
                if isinstance(meter, meters.TimeMeter):
                    meter.reset()
        return extra

    return load_checkpoint


@contextlib.contextmanager
def saves_before_stopping(asked: threading.Event, stop: Callable[[str], Any]) -> Iterator[None]:
    """While this holds, fairseq's trainer, once ``asked``, finishes its update, saves ``checkpoint_last.pt`` and calls
    ``stop``, which raises, with how far it is. A training that ends in that moment has been saved, and just ends."""
    from fairseq import checkpoint_utils
    from fairseq_cli import train as fairseq_train

    stock = fairseq_train.validate_and_save

    def validate_and_save(cfg: Any, trainer: Any, task: Any, epoch_itr: Any, *args: Any) -> Any:
        found = stock(cfg, trainer, task, epoch_itr, *args)
        _, at_its_end = found
        if asked.is_set() and not at_its_end:
            checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, epoch_itr, None)
            stop(f"saved at update {trainer.get_num_updates()} of {cfg.optimization.max_update}")
        return found

    with replaced(fairseq_train, validate_and_save=validate_and_save):
        yield
