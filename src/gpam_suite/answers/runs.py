"""The planned runs by experiment, and one model's score against another's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpam_suite import formatting
from gpam_suite.aggregate import BASELINE, DEFAULT_OPTIONS, FIXED, Aggregate, Row
from gpam_suite.answers.answer import BETTER, MISSING, UNDECIDED, WORSE, Finding
from gpam_suite.answers.plan import main_models, planned_runs
from gpam_suite.metrics import turned
from gpam_suite.records import Record
from gpam_suite.statistics import CONFIDENCE, ENOUGH_SEEDS, Difference, difference, side_of_zero
from gpam_suite.tables import difference_cell


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
        """Whether enough seeds of each model were run, and of those that Holm's method sets beside them."""
        wanted = {*main_models(experiment), *models}
        rows = [self.row(experiment, model) for model in wanted]
        return all(row is not None and len(ended(row)) >= ENOUGH_SEEDS for row in rows)


def ended(row: Row) -> list[Record]:
    """The seeds that finished or diverged. One that failed (killed, out of memory) is still to be run."""
    return [record for record in row.records if record["status"] != "failed"]


def diverged(row: Row) -> int:
    return len(ended(row)) - len(row.finished)


def missing(runs: Runs, experiment: str) -> Finding:
    """Says how many of the planned runs ended, where some did and not all."""
    found, planned = runs.experiment(experiment), planned_runs(experiment)
    count = sum(len(ended(row)) for row in found.rows) if found else 0
    return Finding(experiment, MISSING, f"{count} of {planned} runs" if 0 < count < planned else "")


def lacking(runs: Runs, names: Sequence[str], findings: Sequence[Finding]) -> list[Finding]:
    """A finding that says so for each of ``names`` that has none."""
    known = {found.experiment for found in findings}
    return [missing(runs, name) for name in names if name not in known]


def turned_interval(metric: str, low: float | None, high: float | None) -> tuple[float | None, float | None]:
    """An interval whose values are :func:`turned`, the lower bound first; None twice where there is none."""
    if low is None or high is None:
        return None, None
    low, high = sorted((turned(metric, low), turned(metric, high)))
    return low, high


def verdict_of(low: float | None, high: float | None) -> str:
    """What an interval of a gain says: better above zero, worse below it; undecided without one."""
    return {1: BETTER, -1: WORSE, 0: UNDECIDED}[side_of_zero(low, high)]


def unless_lost(verdict: str, own: Row, base: Row) -> str:
    """``verdict`` on ``own`` against ``base``; undecided where the side that it favours lost a seed."""
    favoured = base if verdict == WORSE else own
    return UNDECIDED if diverged(favoured) else verdict


NONE_FINISHED = "no seed finished on one side"


def lost_seeds(*rows: Row) -> str:
    """``, softmax: 1 of 3 seeds diverged`` for each of the rows that lost some."""
    return "".join(
        f", {row.label}: {diverged(row)} of {formatting.plural(len(ended(row)), 'seed')} diverged"
        for row in rows
        if diverged(row)
    )


def _difference(runs: Runs, experiment: str, model: str, base: str) -> Difference | None:
    metric = runs.experiment(experiment).metric
    own, other = (runs.row(experiment, name).values(metric) for name in (model, base))
    return difference(own, other) if own and other else None


def gain(runs: Runs, experiment: str) -> float | None:
    """daGPAM less softmax in the headline metric, turned; None where all seeds of one are lost.

    The experiment must be complete.
    """
    found = _difference(runs, experiment, FIXED, BASELINE)
    return None if found is None else turned(runs.experiment(experiment).metric, found.estimate)


def half_width(runs: Runs, experiment: str) -> float | None:
    """Of the interval of daGPAM less softmax over seeds; None without one."""
    found = _difference(runs, experiment, FIXED, BASELINE)
    return None if found is None or found.low is None else (found.high - found.low) / 2


def p_value(runs: Runs, experiment: str, model: str) -> float | None:
    """Of ``model`` less softmax over seeds, uncorrected; None without an interval."""
    found = _difference(runs, experiment, model, BASELINE)
    return found and found.p_value


def compared(runs: Runs, experiment: str, model: str = FIXED, base: str = BASELINE) -> Finding:
    """``model`` against ``base`` over seeds, by Holm's method where the table holds several comparisons to softmax."""
    if not runs.complete(experiment, model, base):
        return missing(runs, experiment)
    aggregate, own, other = runs.experiment(experiment), runs.row(experiment, model), runs.row(experiment, base)
    found, lost = _difference(runs, experiment, model, base), lost_seeds(own, other)
    if found is None:
        return Finding(experiment, UNDECIDED, f"{NONE_FINISHED}{lost}")
    why_none = f" ({found.method})" if found.low is None else ""
    phrase = f"{difference_cell(aggregate, found)} {aggregate.quantity}{why_none}{lost}"
    verdict = unless_lost(verdict_of(*turned_interval(aggregate.metric, found.low, found.high)), own, other)
    corrected = aggregate.corrected(aggregate.difference).get(own.key) if base == BASELINE else None
    if verdict != UNDECIDED and corrected is not None and corrected >= 1 - CONFIDENCE:
        return Finding(experiment, UNDECIDED, f"{phrase}, by Holm's method {formatting.p_value(corrected)}")
    return Finding(experiment, verdict, phrase)
