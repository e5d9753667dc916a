"""What ``<results>/perturbed/`` says about an experiment: scores relative to the clean ones, and how models differ."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpam_suite.common.tasks import LM, NMT
from gpam_suite.records.store import PERTURBED, read_runs
from gpam_suite.stats.over_seeds import Difference, difference, holm
from gpam_suite.stats.rows import Aggregate, Row

METRICS = {LM.name: ("perplexity",), NMT.name: ("bleu", "chrf")}
"""By task; the first is what is drawn and tested."""
BySeed = dict[int, dict[str, Any]]


@dataclass(frozen=True)
class Found:
    """An experiment's models that have read perturbed input, with what each seed found; all with the same settings.

    ``other`` is the number of runs that were left out, as they had other settings than most.
    """

    aggregate: Aggregate
    rows: tuple[tuple[Row, BySeed], ...]
    settings: dict[str, Any]
    other: int

    @property
    def metric(self) -> str:
        return METRICS[self.aggregate.task][0]

    @property
    def rates(self) -> list[float]:
        """Rates above zero."""
        return self.settings["rates"]

    @property
    def first(self) -> dict[str, Any]:
        """What the first run found; all have read the same."""
        return next(iter(self.rows[0][1].values()))

    @property
    def kinds(self) -> list[str]:
        return self.settings["kinds"]

    def relative(self, own: BySeed, kind: str, metric: str | None = None) -> dict[int, list[float]]:
        """Seed to ``score(rate) / score(0)`` at each rate, of seeds where all are known and the latter is not zero."""
        metric, found = metric or self.metric, {}
        for seed, one in own.items():
            clean, scores = one["clean"][metric], [at[metric] for at in one["kinds"][kind]]
            if clean and None not in scores:
                found[seed] = [score / clean for score in scores]
        return found

    def change(self, own: BySeed, kind: str, metric: str | None = None) -> dict[int, float]:
        """Seed to ``100 score(rate) / score(0) - 100`` at the largest rate: a change in percent."""
        return {seed: 100 * (values[-1] - 1) for seed, values in self.relative(own, kind, metric).items()}

    @cached_property
    def differences(self) -> dict[tuple[tuple[str, str], str], Difference]:
        """Row's key and kind to the change of the row minus that of the baseline, over seeds; of no row that is not
        to be tested yet."""
        base = dict(self.rows).get(self.aggregate.baseline)
        found = {}
        for row, own in self.rows:
            compared = base is not None and self.aggregate.is_tested(row)
            for kind in self.kinds if compared else ():
                ours, theirs = self.change(own, kind), self.change(base, kind)
                if ours and theirs:
                    found[row.key, kind] = difference(ours, theirs)
        return found

    @cached_property
    def corrected(self) -> dict[tuple[tuple[str, str], str], float]:
        """Holm's p values of all :attr:`differences`; in their family is what several seeds were run for, whether or
        not all of them were read."""
        several = [row.key for row, _ in self.rows if row is not self.aggregate.baseline and len(row.records) > 1]
        family = [(key, kind) for key in several for kind in self.kinds]
        return holm({one: (found := self.differences.get(one)) and found.p_value for one in family})


def find(results: Path, aggregate: Aggregate) -> Found | None:
    """What is there of this experiment; None where nothing is."""
    if aggregate.task not in METRICS:
        return None
    records = aggregate.finished
    runs = read_runs(results, records, PERTURBED)
    if not runs:
        return None
    (usual, count), *_ = Counter(json.dumps(one["settings"]) for one in runs.values()).most_common()
    same = {folder: one for folder, one in runs.items() if json.dumps(one["settings"]) == usual}
    rows = [
        (row, {record["seed"]: same[record.folder] for record in row.finished if record.folder in same})
        for row in aggregate.rows
    ]
    return Found(aggregate, tuple((row, own) for row, own in rows if own), json.loads(usual), len(runs) - count)
