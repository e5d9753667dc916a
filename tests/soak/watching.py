"""What watching attention costs: updates with and without a check, in turn, on a model of the laptop recipe's size."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401
from gpam_fairseq.trainer import invariants

import torch
from fairseq.trainer import Trainer
from omegaconf import OmegaConf
from runs import tiny, train_here
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpam_suite.common.places import CONFIGS
from soak.parts import Figures

_SIZE = {"decoder_layers": 6, "decoder_embed_dim": 128, "decoder_ffn_embed_dim": 256, "decoder_attention_heads": 4}


class _Computed(TorchDispatchMode):
    """Counts the numbers that torch's operators give."""

    numbers = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        self.numbers += sum(leaf.numel() for leaf in tree_leaves(found) if isinstance(leaf, torch.Tensor))
        return found


def counted() -> float:
    """Percent of the numbers computed in a training that are those of checks, at the default of ``configs/train.yaml``:
    the same on every machine."""
    with _Computed() as computed:
        update, check, every = _medians(3, lambda: computed.numbers)
    return 100 * check / (every * update)


def cost() -> Figures:
    """The share of training time that checks take at the default of ``configs/train.yaml``, on one thread.

    Raises:
        AssertionError: 1 % or more.
    """
    update, check, every = _medians(60, time.process_time)
    percent = 100 * check / (every * update)
    assert percent < 1, f"checks every {every} updates take {percent:.2f} % of training"
    return {
        "percent": round(percent, 3),
        "every": every,
        "check_milliseconds": round(1e3 * check, 1),
        "update_milliseconds": round(1e3 * update, 1),
    }


def _medians(pairs: int, spent: Callable[[], float]) -> tuple[float, float, int]:
    """What an update takes by ``spent``, what a check takes beside it, and the updates from check to check."""
    every = OmegaConf.load(CONFIGS / "train.yaml").checks.attention_every
    taken: dict[bool, list[float]] = {True: [], False: []}
    checked, plain = invariants.checked_attention, Trainer.train_step

    def looked(trainer: Trainer, *args: object, **kwargs: object) -> object:
        due = trainer.get_num_updates() % 2 == 1  # the next one is even
        before = spent()
        found = stepping(trainer, *args, **kwargs)
        if trainer.get_num_updates() > 4:
            taken[due].append(spent() - before)
        return found

    with tempfile.TemporaryDirectory() as folder, checked(2):
        stepping = Trainer.train_step
        Trainer.train_step = looked
        try:
            own = [f"++fairseq.model.{name}={value}" for name, value in _SIZE.items()]
            own += ["++fairseq.task.tokens_per_sample=128", "++fairseq.dataset.max_tokens=1024"]
            own += [f"++fairseq.optimization.max_update={2 * pairs + 4}", "++fairseq.common.log_interval=1000"]
            own += ["++fairseq.dataset.validate_interval_updates=1000", "model=dagpam_trainable"]
            train_here(tiny(Path(folder), *own))
        finally:
            Trainer.train_step = plain
    update = statistics.median(taken[False])
    return update, statistics.median(taken[True]) - update, every
