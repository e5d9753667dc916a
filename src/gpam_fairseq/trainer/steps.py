"""The training step of fairseq's own commands, in their process and in those that they start for several GPUs."""

import contextlib
import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpam_fairseq.trainer import switch
from gpam_fairseq.trainer.fast import fast_step
from gpam_fairseq.trainer.replacing import replaced

from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed

from gpam.attention.backends import calibration

_stock = distributed.distributed_main


@contextlib.contextmanager
def steps() -> Iterator[None]:
    """Training by the fast step, or by fairseq's own.

    What backends are chosen by is written into --save-dir, and a training that is resumed goes on with it: so it ends
    with the same bits.
    """
    if not switch.wanted():
        calibration.use(calibration.PLAIN)
        yield
        return
    stock = checkpoint_utils.load_checkpoint

    def load_checkpoint(cfg: Any, trainer: Any, **options: Any) -> Any:
        found = stock(cfg, trainer, **options)
        write = trainer.is_data_parallel_master and not cfg.no_save
        calibration.keep(Path(cfg.save_dir), resumed=trainer.get_num_updates() > 0, write=write)
        return found

    with fast_step(), replaced(checkpoint_utils, load_checkpoint=load_checkpoint):
        yield


def distributed_main(index: int, main: Callable[..., Any], cfg: Any, options: dict[str, Any]) -> None:
    """fairseq's function of this name, which a process for one of several GPUs begins with.

    Such a process has nothing of the one that started it, not even the plugin, without which fairseq cannot be
    imported; that it looks for this function here brings both.
    """
    cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True  # fairseq's broadcast needs to unpickle a class of its own
    started = multiprocessing.parent_process() is not None
    with steps() if started else contextlib.nullcontext():
        _stock(index, main, cfg, options)
