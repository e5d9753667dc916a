"""daGPAM against softmax inside the models: what is left of the tokens' differences, and the gradients' norms."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from gpam_suite.common import formatting
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.over_seeds import Difference, difference, side_of_zero

CANDIDATE = "dagpam"
COLLAPSE = {"residual": 1, "cosine": -1, "effective_rank": 1}
"""Measures of tokens, and whether more or less of each is less collapse."""
PROJECTIONS = ("query", "key", "value")
Pairs = list[tuple[Aggregate, Row]]


@dataclass(frozen=True)
class Comparison:
    """One number of the runs of ``row``, by seed, against that of the experiment's baseline; ``stack`` is "" where the
    number is of the whole model."""

    aggregate: Aggregate
    row: Row
    stack: str
    name: str
    own: dict[int, float]
    base: dict[int, float]

    @cached_property
    def difference(self) -> Difference:
        return difference(self.own, self.base)

    @property
    def sign(self) -> int:
        """-1, 0 or 1 as the interval of the difference lies below, around or above zero; 0 without an interval, and
        where a side lost a seed."""
        if self.row.lost or self.aggregate.baseline.lost:
            return 0
        return side_of_zero(self.difference.low, self.difference.high)

    @property
    def means(self) -> tuple[float, float]:
        """Of the baseline and of the row."""
        return fmean(self.base.values()), fmean(self.own.values())

    def cells(self, digits: int) -> list[str]:
        """Both means, and the difference with its interval."""
        found = self.difference
        estimate = formatting.estimate(found.estimate, found.low, found.high, digits)
        return [*(formatting.number(value, digits) for value in self.means), estimate]


def candidates(aggregates: Sequence[Aggregate]) -> Pairs:
    """daGPAM with any options, where softmax was run beside it."""
    compared = [found for found in aggregates if found.baseline is not None and found.baseline.finished]
    return [
        (found, row) for found in compared for row in found.rows if row.model.startswith(CANDIDATE) and row.finished
    ]


def collapse(pairs: Pairs, analyses: dict[Path, Any]) -> list[Comparison]:
    """Each of :data:`COLLAPSE` behind the last layer of each stack."""
    found = []
    for aggregate, row in pairs:
        first = next((analyses[record.folder] for record in aggregate.records if record.folder in analyses), None)
        for stack in first["streams"] if first else ():
            for name in COLLAPSE:
                own, base = (_last(side, analyses, stack, name) for side in (row, aggregate.baseline))
                if own and base:
                    found.append(Comparison(aggregate, row, stack, name, own, base))
    return found


def _last(row: Row, analyses: dict[Path, Any], stack: str, name: str) -> dict[int, float]:
    found = {record["seed"]: analyses.get(record.folder) for record in row.finished}
    return {seed: one["streams"][stack][name][-1] for seed, one in found.items() if one}


def gradients(pairs: Pairs) -> list[Comparison]:
    """Median over training of the norm of the loss' gradient in each of :data:`PROJECTIONS`, mean over modules."""
    found = []
    for aggregate, row in pairs:
        for kind in PROJECTIONS:
            own, base = (_norms(side, kind) for side in (row, aggregate.baseline))
            if own and base:
                found.append(Comparison(aggregate, row, "", kind, own, base))
    return found


def fading(pairs: Pairs) -> list[Comparison]:
    """The query's gradient norm (median over training) in the first layer of a stack's self-attention as a multiple of
    that in its last layer: far below one where gradients vanish towards the input."""
    found = []
    for aggregate, row in pairs:
        for stack in ("encoder", "decoder"):
            own, base = (_first_over_last(side, stack) for side in (row, aggregate.baseline))
            if own and base:
                found.append(Comparison(aggregate, row, stack, "query", own, base))
    return found


def _first_over_last(row: Row, stack: str) -> dict[int, float]:
    found = {}
    for record in row.finished:
        norms = record.data.get("gradient_norms") or {}
        layers = {
            int(layer[1]): value
            for name, value in norms.items()
            if value is not None and (layer := re.fullmatch(rf"query/{stack}\.layers\.(\d+)\.self_attn", name))
        }
        if len(layers) > 1 and layers[max(layers)]:
            found[record["seed"]] = layers[min(layers)] / layers[max(layers)]
    return found


def _norms(row: Row, kind: str) -> dict[int, float]:
    norms = {record["seed"]: record.data.get("gradient_norms") for record in row.finished}
    return {seed: mean_of(found, kind) for seed, found in norms.items() if found}


def mean_of(norms: dict[str, float], kind: str) -> float:
    """Mean over modules of the gradient norms of one projection."""
    return fmean(value for name, value in norms.items() if name.startswith(f"{kind}/") and value is not None)
