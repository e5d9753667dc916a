"""A model against softmax inside the trained models: what is left of the tokens' differences, and gradient norms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.over_seeds import Difference, difference


@dataclass(frozen=True)
class Comparison:
    """One number of the runs of a row, by seed, against that of its experiment's baseline; ``stack`` is "" where the
    number is of the whole model."""

    aggregate: Aggregate
    stack: str
    own: dict[int, float]
    base: dict[int, float]

    @cached_property
    def difference(self) -> Difference:
        return difference(self.own, self.base)

    @property
    def means(self) -> tuple[float, float]:
        """Of the baseline and of the row."""
        return fmean(self.base.values()), fmean(self.own.values())


def collapse(
    pairs: Sequence[tuple[Aggregate, Row]], analyses: Mapping[Path, Any], measure: str = "residual"
) -> list[Comparison]:
    """A measure of the tokens behind the last layer of each stack."""
    found = []
    for aggregate, row in pairs:
        first = next((analyses[record.folder] for record in aggregate.records if record.folder in analyses), None)
        for stack in first["streams"] if first else ():
            own, base = (_last(side, analyses, stack, measure) for side in (row, aggregate.baseline))
            if own and base:
                found.append(Comparison(aggregate, stack, own, base))
    return found


def _last(row: Row, analyses: Mapping[Path, Any], stack: str, measure: str) -> dict[int, float]:
    found = {record["seed"]: analyses.get(record.folder) for record in row.finished}
    return {seed: one["streams"][stack][measure][-1] for seed, one in found.items() if one}


def gradients(pairs: Sequence[tuple[Aggregate, Row]], kind: str = "query") -> list[Comparison]:
    """Median over training of the norm of the loss' gradient in a kind of projection, mean over modules."""
    sides = [(aggregate, _norms(row, kind), _norms(aggregate.baseline, kind)) for aggregate, row in pairs]
    return [Comparison(aggregate, "", own, base) for aggregate, own, base in sides if own and base]


def _norms(row: Row, kind: str) -> dict[int, float]:
    norms = {record["seed"]: record.data.get("gradient_norms") for record in row.finished}
    return {seed: mean for seed, found in norms.items() if (mean := mean_of(found, kind)) is not None}


def mean_of(norms: Mapping[str, float | None] | None, kind: str) -> float | None:
    """Mean over modules of the numbers ``kind/<module>``; None where there are none."""
    found = [value for name, value in (norms or {}).items() if name.startswith(f"{kind}/") and value is not None]
    return fmean(found) if found else None
