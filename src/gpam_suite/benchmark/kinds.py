"""The kinds of cases: what makes the contenders of one, and which of them the others are compared with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpam_suite.benchmark import core, decoding, layer, preparation, training_step, whole_training
from gpam_suite.benchmark.comparison import Contender
from gpam_suite.benchmark.settings import Settings


@dataclass(frozen=True)
class Kind:
    """``contenders(shape, settings)`` gives a function a name, which makes that contender; ``shape`` is the case
    without ``kind`` and ``contenders``. ``baseline`` is the contender of ratio 1; ``tolerance`` the relative error
    allowed, where it does not follow from the dtype. Memory is measured where a pass is short: it records every event.
    FLOPs are counted where there are any.
    """

    title: str
    what: str
    baseline: str
    contenders: Callable[[Mapping[str, Any], Settings], Mapping[str, Callable[[], Contender]]]
    tolerance: float | None = None
    measure_memory: bool = False
    measure_flops: bool = True


_LAYER = "One layer of each stack, forward and backward."
_STEP = "Forward, backward and Adam on one batch."
_PREPARE = (
    "Parallel text through Moses, joint sub-words, dictionary and ids to fairseq's data, the same bytes from both: "
    "`suite` is one command; `libraries` are the commands of sacremoses, subword-nmt and fairseq's preprocess (one "
    "worker), one after another. Peak: of all processes at once; larger text: the training text "
    f"{preparation.LARGER} times. Tokens are sub-words, ends of sentences counted."
)
_TRAIN = (
    "An update of `python -m gpam_fairseq train`, by the tokens a second of its log; a sample is a process of its own. "
    "`stock`: fairseq's model and step (GPAM_FAST=0); a mechanism: the plugin's model with the fast step. Peak: of the "
    "whole process."
)
_DECODE = "A step of incremental decoding, the mean over all."

KINDS = {
    "core": Kind(
        "Attention core",
        "Forward and backward, between the projections.",
        "softmax-sdpa",
        core.contenders,
        measure_memory=True,
    ),
    "layer": Kind("Layer", _LAYER, "stock", layer.contenders, 5e-3, measure_memory=True),
    "step": Kind("Training step", _STEP, "stock", training_step.contenders, tolerance=5e-3),
    "train": Kind("Whole training", _TRAIN, "stock", whole_training.contenders, tolerance=2e-3, measure_flops=False),
    "decode": Kind("Decoding step", _DECODE, "stock", decoding.contenders),
    "prepare": Kind("Preparation", _PREPARE, "libraries", preparation.contenders, 0.0, measure_flops=False),
}
