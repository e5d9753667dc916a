"""What watching attention costs: updates with and without a check, in turn, on a model of the laptop recipe's size."""

import statistics
import tempfile
import time
from pathlib import Path

import gpam_fairseq  # noqa: F401
from gpam_fairseq.trainer import invariants

from fairseq.trainer import Trainer
from omegaconf import OmegaConf
from runs import TINY_LM, composed, places, train_here, write_text

from gpam_suite.config.compose import CONFIGS
from soak.part import Figures

_SIZE = {"decoder_layers": 6, "decoder_embed_dim": 128, "decoder_ffn_embed_dim": 256, "decoder_attention_heads": 4}


def cost(pairs: int = 60) -> Figures:
    """The share of training time that checks take at the default of ``configs/train.yaml``, on one thread.

    Raises:
        AssertionError: 1 % or more.
    """
    every = OmegaConf.load(CONFIGS / "train.yaml").checks.attention_every
    seconds: dict[bool, list[float]] = {True: [], False: []}
    checked, plain = invariants.checked_attention, Trainer.train_step

    def timed(trainer: Trainer, *args: object, **kwargs: object) -> object:
        due = trainer.get_num_updates() % 2 == 1  # the next one is even
        clock = time.process_time()
        found = stepping(trainer, *args, **kwargs)
        if trainer.get_num_updates() > 4:
            seconds[due].append(time.process_time() - clock)
        return found

    with tempfile.TemporaryDirectory() as folder, checked(2):
        stepping = Trainer.train_step
        Trainer.train_step = timed
        try:
            base = Path(folder)
            own = [f"++fairseq.model.{name}={value}" for name, value in _SIZE.items()]
            own += ["++fairseq.task.tokens_per_sample=128", "++fairseq.dataset.max_tokens=1024"]
            own += [f"++fairseq.optimization.max_update={2 * pairs}", "++fairseq.common.log_interval=1000"]
            own += ["++fairseq.dataset.validate_interval_updates=1000", "model=dagpam_trainable"]
            text = write_text(base / "text")
            train_here(composed(*TINY_LM, *places(base), f"dataset.folder={text}", *own))
        finally:
            Trainer.train_step = plain
    update = statistics.median(seconds[False])
    check = statistics.median(seconds[True]) - update
    percent = 100 * check / (every * update)
    assert percent < 1, f"checks every {every} updates take {percent:.2f} % of training"
    return {
        "percent": round(percent, 3),
        "every": every,
        "check_milliseconds": round(1e3 * check, 1),
        "update_milliseconds": round(1e3 * update, 1),
    }
