"""The kinds of cases: what makes the contenders of one, and which of them the others are compared with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpam_suite.benchmark import core, model_kinds, whole_training
from gpam_suite.benchmark.comparison import Maker, Settings


@dataclass(frozen=True)
class Kind:
    """``contenders(shape, settings)`` gives the names of a case's contenders and what makes one; ``shape`` is the case
    without ``kind`` and ``contenders``. ``baseline`` is the contender of ratio 1; ``tolerance`` the relative error
    allowed, where it does not follow from the dtype.
    """

    title: str
    what: str
    baseline: str
    contenders: Callable[[Mapping[str, Any], Settings], tuple[list[str], Maker]]
    tolerance: float | None = None


_TRAIN = (
    "An update of `python -m gpam_fairseq train`, by the tokens a second of its log; a sample is a process of its own. "
    "`stock`: fairseq's model and step (GPAM_FAST=0); a mechanism: the plugin's model with the fast step. Peak: of the "
    "whole process."
)
_CORE = "Forward and backward, between the projections."
_LAYER = "One layer of each stack, forward and backward."
_STEP = "Forward, backward and Adam on one batch."
_DECODE = "A step of incremental decoding, the mean over all."

KINDS = {
    "core": Kind("Attention core", _CORE, "softmax-sdpa", core.contenders),
    "layer": Kind("Layer", _LAYER, "stock", model_kinds.layers, 5e-3),
    "step": Kind("Training step", _STEP, "stock", model_kinds.steps, 5e-3),
    "train": Kind("Whole training", _TRAIN, "stock", whole_training.contenders, 2e-3),
    "decode": Kind("Decoding step", _DECODE, "stock", model_kinds.decoding, 2e-4),
}
