"""The planned runs by experiment, and one model's score against another's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpam_suite import formatting
from gpam_suite.aggregate import BASELINE, DEFAULT_OPTIONS, Aggregate, Row
from gpam_suite.answers.answer import BETTER, MISSING, UNDECIDED, WORSE, Finding
from gpam_suite.reading import QUANTITY
from gpam_suite.statistics import CONFIDENCE, ENOUGH_SEEDS, Difference, difference
from gpam_suite.tables import LOWER_IS_BETTER

FIXED, TRAINABLE = "dagpam", "dagpam_trainable"


@dataclass(frozen=True)
class Runs:
    """Some of the experiments below ``results``."""

    results: Path
    aggregates: Sequence[Aggregate]

    def experiment(self, name: str) -> Aggregate | None:
        return next((found for found in self.aggregates if found.experiment == name), None)

    def row(self, experiment: str, model: str) -> Row | None:
        """The model with its default options."""
        found = self.experiment(experiment)
        rows = found.rows if found else ()
        return next((row for row in rows if (row.model, row.overrides_label) == (model, DEFAULT_OPTIONS)), None)

    def complete(self, experiment: str, *models: str) -> bool:
        """Whether enough seeds of each model were run; lost ones count, as they will not come back."""
        rows = [self.row(experiment, model) for model in models]
        return all(row is not None and len(row.records) >= ENOUGH_SEEDS for row in rows)


def missing(experiment: str) -> Finding:
    return Finding(experiment, MISSING, MISSING)


def lacking(names: Sequence[str], findings: Sequence[Finding]) -> list[Finding]:
    """A finding that says so for each of ``names`` that has none."""
    known = {found.experiment for found in findings}
    return [missing(name) for name in names if name not in known]


def turned(aggregate: Aggregate, value: float) -> float:
    """``value``, in the headline metric or correlated with it, so that more is better."""
    return -value if aggregate.metric in LOWER_IS_BETTER else value


def turned_interval(aggregate: Aggregate, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """An interval whose values are :func:`turned`, the lower bound first; None twice where there is none."""
    if low is None or high is None:
        return None, None
    low, high = sorted((turned(aggregate, low), turned(aggregate, high)))
    return low, high


def verdict_of(low: float | None, high: float | None) -> str:
    """What an interval of a gain says: better above zero, worse below it; undecided without one."""
    if low is None or high is None:
        return UNDECIDED
    return BETTER if low > 0 else WORSE if high < 0 else UNDECIDED


def _difference(runs: Runs, experiment: str, model: str, base: str) -> Difference | None:
    metric = runs.experiment(experiment).metric
    own, other = (runs.row(experiment, name).values(metric) for name in (model, base))
    return difference(own, other) if own and other else None


def gain(runs: Runs, experiment: str) -> float | None:
    """daGPAM less softmax in the headline metric, turned; None until both have their seeds, or where all are lost."""
    if not runs.complete(experiment, FIXED, BASELINE):
        return None
    found = _difference(runs, experiment, FIXED, BASELINE)
    return None if found is None else turned(runs.experiment(experiment), found.estimate)


def compared(runs: Runs, experiment: str, model: str = FIXED, base: str = BASELINE) -> Finding:
    """``model`` against ``base`` over seeds, by Holm's method where the table holds several comparisons to softmax.

    A model that lost a seed (it failed or diverged) is not better, whatever the others say.
    """
    if not runs.complete(experiment, model, base):
        return missing(experiment)
    aggregate, row = runs.experiment(experiment), runs.row(experiment, model)
    found = _difference(runs, experiment, model, base)
    lost = f", {formatting.plural(len(row.lost), 'seed')} of {len(row.records)} lost" if row.lost else ""
    if found is None:
        return Finding(experiment, UNDECIDED, f"no seed finished on one side{lost}")
    phrase = f"{formatting.estimate(found.estimate, found.low, found.high)} {QUANTITY[aggregate.metric]}{lost}"
    if found.holds_zero is not False:
        return Finding(experiment, UNDECIDED, phrase)
    corrected = aggregate.corrected(aggregate.difference).get(row.key) if base == BASELINE else None
    if corrected is not None and corrected >= 1 - CONFIDENCE:
        return Finding(experiment, UNDECIDED, f"{phrase}, by Holm's method {formatting.p_value(corrected)}")
    better = turned(aggregate, found.estimate) > 0
    return Finding(experiment, (UNDECIDED if lost else BETTER) if better else WORSE, phrase)
