"""The rows of an experiment's table, and what they are compared by."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from gpam_suite.common.tasks import LM, TASKS
from gpam_suite.records.folder import Record
from gpam_suite.records.metrics import turned
from gpam_suite.stats.bootstrap import Resampled, hierarchical_bootstrap, paired_bootstrap, resample
from gpam_suite.stats.over_seeds import (
    ENOUGH_SEEDS,
    Difference,
    Summary,
    difference,
    holm,
    shared,
    summarise,
)

BASELINE = "softmax"
DEFAULT_OPTIONS = "default"


@dataclass(frozen=True, eq=False)
class Row:
    """All seeds of one model with one set of options and one training; ``lost`` are those that failed or diverged."""

    model: str
    label: str
    overrides_label: str
    options: dict[str, Any]
    finished: tuple[Record, ...]
    lost: tuple[Record, ...]
    trained: Mapping[str, str] = field(default_factory=dict)
    """What of its training is not as usual in its table."""

    @property
    def key(self) -> tuple[str, str]:
        """Model and options: what tells the rows of a table apart."""
        return self.model, self.overrides_label

    @property
    def has_default_options(self) -> bool:
        """Whether its options are those of its file in ``configs/model/``, and its training as usual in its table."""
        return self.overrides_label == DEFAULT_OPTIONS

    @property
    def arm(self) -> str:
        """What plans and ``configs/claims.yaml`` call it: the model, and what is not as usual."""
        return self.model if self.has_default_options else f"{self.model} ({self.overrides_label})"

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(sorted(self.finished + self.lost, key=lambda record: record["seed"]))

    @property
    def seeds(self) -> list[int]:
        """Seeds that finished."""
        return [record["seed"] for record in self.finished]

    def by_seed(self, read: Callable[[Record], float | None]) -> dict[int, float]:
        """What ``read`` finds in the finished runs, where it finds something."""
        return {record["seed"]: value for record in self.finished if (value := read(record)) is not None}

    def values(self, metric: str) -> dict[int, float]:
        """Seed to number, for the finished seeds that have it."""
        return self.by_seed(lambda record: record["metrics"].get(metric))

    def summary(self, metric: str) -> Summary:
        return summarise(list(self.values(metric).values()))

    def mean(self, *path: str) -> float | None:
        """Mean over the finished seeds of a number in the record, e.g. ``mean("memory", "peak_bytes")``."""
        return summarise(list(self.by_seed(lambda record: record.at(*path)).values())).mean

    def ratio(self, other: "Row", *path: str) -> float | None:
        """:meth:`mean` over that of ``other``; None where either is unknown."""
        own, base = self.mean(*path), other.mean(*path)
        return own / base if own is not None and base else None

    @property
    def machine(self) -> set[str]:
        """What the finished seeds ran on; speed and memory compare only where it is one and the same."""
        told = ([record.hardware, record["gpu"], record["world_size"]] for record in self.finished)
        return {json.dumps(one, sort_keys=True) for one in told}

    @cached_property
    def resampled(self) -> list[Resampled]:
        """Every finished seed on resampled test sets; none when one of them has no scores to resample."""
        found = [resample(record) for record in self.finished]
        return [] if None in found else found


@dataclass(frozen=True, eq=False)
class Aggregate:
    """An experiment ready for its table: ``rows`` with the baseline (if it was run) first."""

    experiment: str
    task: str
    rows: tuple[Row, ...]
    baseline: Row | None
    usual: Mapping[str, str] = field(default_factory=dict)
    """What the settings that name rows are where a row does not say."""
    untested: frozenset[tuple[str, str]] = frozenset()
    """Keys of rows that are compared with nothing yet, as a plan has more seeds of them."""

    @property
    def metric(self) -> str:
        """The headline metric."""
        return TASKS[self.task].headline

    @property
    def unit(self) -> str | None:
        """Of text, what perplexity is counted by; where BLEU is not of sentences, what it is of."""
        return self.reference["protocol"].get("unit")

    @property
    def digits(self) -> int:
        """Decimals of the headline metric: perplexities of characters are small."""
        return 3 if self.task == LM.name and self.unit == "character" else 2

    @cached_property
    def records(self) -> list[Record]:
        return [record for row in self.rows for record in row.records]

    @property
    def finished(self) -> list[Record]:
        return [record for row in self.rows for record in row.finished]

    @cached_property
    def reference(self) -> Record:
        """A record to read the shared facts (data set, recipe, protocol) from; a finished one if there is any."""
        return next(iter(self.finished), self.records[0])

    def row_of(self, model: str, seeds: int = ENOUGH_SEEDS) -> Row | None:
        """The model's row with its own options, where ``seeds`` of its seeds finished."""
        rows = (row for row in self.rows if row.model == model and row.has_default_options)
        return next((row for row in rows if len(row.finished) >= seeds), None)

    def goodness(self, row: Row) -> float:
        """The mean of the headline metric over the row's finished seeds, turned so that more is better."""
        return turned(self.metric, fmean(row.values(self.metric).values()))

    def baseline_of(self, row: Row) -> Row | None:
        """What ``row`` is compared with: the baseline trained as it was, where that was run, else the usual one."""
        if self.baseline is None or row.model == self.baseline.model:
            return self.baseline
        alike = (one for one in self.rows if one.model == self.baseline.model and one.options == self.baseline.options)
        return next((one for one in alike if one.trained == row.trained and one.finished), self.baseline)

    def difference(self, row: Row, metric: str | None = None) -> Difference | None:
        """``row`` minus :meth:`baseline_of` it over seeds; None for the baseline itself or where one has no number."""
        metric = metric or self.metric
        if not self.is_tested(row):
            return None
        values, baseline = row.values(metric), self.baseline_of(row).values(metric)
        return difference(values, baseline) if values and baseline else None

    def test_set(self, row: Row) -> Difference | None:
        """``row`` minus baseline on the test set; None for the baseline or where scores are missing or few."""
        sides = self.both_resampled(row)
        return paired_bootstrap(*sides) if sides else None

    def seeds_and_test_set(self, row: Row) -> Difference | None:
        """``row`` minus baseline with seeds and test set drawn anew; None where scores or seeds are missing or few."""
        sides = self.both_resampled(row)
        return hierarchical_bootstrap(*sides) if sides else None

    def both_resampled(self, row: Row) -> tuple[list[Resampled], ...]:
        """Of ``row`` and :meth:`baseline_of` it the seeds that are compared, on resampled test sets; nothing where
        :meth:`test_set` has none."""
        baseline = self.baseline_of(row)
        if not self.is_tested(row) or not row.resampled or not baseline.resampled:
            return ()
        sides = ({run.record["seed"]: run for run in side.resampled} for side in (row, baseline))
        return tuple(list(side.values()) for side in shared(*sides))

    def is_tested(self, row: Row) -> bool:
        return self.baseline is not None and row is not self.baseline and row.key not in self.untested

    @cached_property
    def compared(self) -> list[Row]:
        """The rows that have a difference to the baseline; with more than one, p values want a correction."""
        return [row for row in self.rows if self.difference(row)]

    def corrected(self, find: Callable[[Row], Difference | None]) -> dict[tuple[str, str], float]:
        """Holm's p values of ``find`` (:meth:`difference`, :meth:`test_set`) by the row's key, where there are any; in
        its family is what several seeds were run for, whether or not they finished."""
        tests = {row: (found := find(row)) and found.p_value for row in self.rows if row is not self.baseline}
        return holm({row.key: p for row, p in tests.items() if p is not None or len(row.records) > 1})

    def ratio(self, row: Row, *path: str, same_machine: bool = False) -> float | None:
        """Mean of a number of ``row`` over that of :meth:`baseline_of` it; None where unknown or not comparable."""
        baseline = self.baseline_of(row)
        if baseline is None or (same_machine and (row.machine != baseline.machine or len(row.machine) != 1)):
            return None
        return row.ratio(baseline, *path)
