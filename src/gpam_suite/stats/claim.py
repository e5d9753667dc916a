"""A claim of the paper's, as the plan of an experiment fixes it.

The plan's numbers stand in ``configs/claims.yaml``. Of a model and a baseline, ``gain(k)`` is what seed ``k`` gains:
``ln PPL(baseline) - ln PPL(model)`` for a perplexity, ``model - baseline`` for BLEU and accuracy. ``D`` is the smallest
effect of interest on the same scale: where the paper has the row, its gain.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import yaml

from gpam_suite.common.places import CONFIGS
from gpam_suite.records.metrics import IN_PERCENT, turned
from gpam_suite.stats.rows import BASELINE, Aggregate, Row

_SEEDS_OF_OTHERS = 3


@dataclass(frozen=True)
class Claim:
    """What a plan fixes of an experiment before its runs: its entry in ``configs/claims.yaml``. ``controls`` and
    ``arms`` have the seeds of each arm beside softmax and the model."""

    experiment: str
    title: str
    model: str
    seeds: int
    controls: dict[str, int]
    references: dict[str, Any]
    paper: dict[str, float] | None = None
    smallest_effect: dict[str, float] | float | None = None
    pairs: list[tuple[str, str]] = field(default_factory=list)
    arms: dict[str, int] = field(default_factory=dict)
    schedules: list[tuple[str, str]] = field(default_factory=list)
    part_of: str | None = None
    plan: str | None = None
    extension: dict[str, Any] | None = None

    @property
    def by_schedule(self) -> list[tuple[str, str]]:
        """The model and softmax, by the recipe's schedule and by each other one that both were trained by."""
        return [(self.model, BASELINE), *self.schedules]

    @property
    def family(self) -> str:
        """What Holm's correction is over: the claims of one plan."""
        return self.plan or self.part_of or self.experiment

    @property
    def secondary(self) -> int:
        """How many secondary comparisons there are of it: of each arm with softmax, of the model with each control, of
        pairs; of a part of a plan the first as well."""
        return 2 * len(self.controls) + len(self.arms) + len(self.pairs) + bool(self.part_of)

    def is_planned(self, arm: str) -> bool:
        return arm in (BASELINE, self.model, *self.controls, *self.arms)

    @property
    def asked_about(self) -> frozenset[str]:
        """The model, and the arms that are compared with more than softmax: controls and pairs."""
        return frozenset([self.model, *self.controls]).union(*self.pairs)

    def extended(self, spread: float | None) -> "Claim":
        """With the seeds of the plan's extension (``seeds``, of softmax, the model and the controls in ``also``) where
        the standard deviation of the planned seeds' gains is above its ``spread``."""
        if self.extension is None or spread is None or spread <= self.extension["spread"]:
            return self
        seeds = self.extension["seeds"]
        return replace(self, seeds=seeds, controls=self.controls | dict.fromkeys(self.extension["also"], seeds))

    def planned(self, aggregate: Aggregate) -> Aggregate:
        """``aggregate`` with the plan's seeds alone: what was run beyond them plays no part."""
        cut = {row: self._cut(row) for row in aggregate.rows}
        left = tuple(row for row in cut.values() if row.records)
        baseline = cut.get(aggregate.baseline)
        return replace(aggregate, rows=left, baseline=baseline if baseline in left else None)

    def _cut(self, row: Row) -> Row:
        most = self.seeds_for(row.arm)
        finished, lost = (tuple(run for run in ended if 1 <= run["seed"] <= most) for ended in (row.finished, row.lost))
        return replace(row, finished=finished, lost=lost)

    def seeds_for(self, arm: str) -> int:
        """How many seeds the plan has of an arm, 1 to this; of one that is not planned a few are asked for."""
        if arm in (BASELINE, self.model):
            return self.seeds
        return (self.controls | self.arms).get(arm, _SEEDS_OF_OTHERS)

    def effect(self, metric: str) -> float:
        """``D``: the gain between two scores, the paper's of this row or others, or a number on the scale of the
        comparisons."""
        given = self.paper or self.smallest_effect
        if not isinstance(given, dict):
            return given
        return on_scale(metric, given["model"]) - on_scale(metric, given["baseline"])


def share_lower(gain: Any) -> Any:
    """``1 - PPL(model) / PPL(baseline)`` of the gain of a perplexity: ``1 - exp(-gain)``."""
    return -np.expm1(-gain)


def as_shown(metric: str, gain: float) -> float:
    """A gain on the scale of :func:`on_scale` as people read it: percent by which a perplexity is lower, or points."""
    return float(100 * share_lower(gain)) if metric in IN_PERCENT else gain


def on_scale(metric: str, value: float) -> float:
    """The scale of gains: ``-ln`` of a perplexity, other scores turned so that more is better."""
    return -math.log(value) if metric in IN_PERCENT else turned(metric, value)


def secondary_of(family: str) -> int:
    """How many secondary comparisons all claims of a family make."""
    return sum(claim.secondary for claim in read_claims().values() if claim.family == family)


@cache
def read_claims() -> dict[str, Claim]:
    """Experiment to claim, from ``configs/claims.yaml``."""
    entries = yaml.safe_load((CONFIGS / "claims.yaml").read_text(encoding="utf-8"))
    return {name: Claim(name, **entry) for name, entry in entries.items()}
