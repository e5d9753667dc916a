"""A claim of the paper's and what an experiment says of it: the comparisons of its plan, computed once and saved.

The plan's numbers stand in ``configs/claims.yaml``. Of a model and a baseline, ``gain(k)`` is what seed ``k`` gains:
``ln PPL(baseline) - ln PPL(model)`` for a perplexity, ``model - baseline`` for BLEU and accuracy. ``D`` is the smallest
effect of interest on the same scale: where the paper has the row, its gain.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import yaml

from gpam_suite.common.places import CONFIGS
from gpam_suite.common.tasks import TASKS
from gpam_suite.evaluate.kneser_ney import reference_file
from gpam_suite.inside import store
from gpam_suite.records.folder import Record
from gpam_suite.records.metrics import IN_PERCENT, turned
from gpam_suite.stats.aggregate import BASELINE, Aggregate, Row
from gpam_suite.stats.curves import validation
from gpam_suite.stats.inside_claim import QuantityInside, Weights, inside, weights
from gpam_suite.stats.over_seeds import Difference, Equivalence, difference, equivalence, holm, summarise

SUPPORTED, CONTRADICTED, INCONCLUSIVE, SECONDARY = "supported", "contradicted", "inconclusive", "none: secondary"
SUPPORTED_SMALLER = "supported, but smaller: a gain of the size claimed is excluded"
NOT_TRAINED, TRAINING_UNKNOWN = "none: not trained", "none: not known whether trained"
MOST_GAIN = 0.01
"""Of the last tenth of training, in a model that is trained."""
_SEEDS_OF_OTHERS = 3


@dataclass(frozen=True)
class Claim:
    """What a plan fixes of an experiment before its runs: its entry in ``configs/claims.yaml``. ``secondary`` is how
    many secondary comparisons the plan and its parts make in all."""

    experiment: str
    title: str
    model: str
    seeds: int
    controls: dict[str, int]
    references: dict[str, Any]
    paper: dict[str, float] | None = None
    smallest_effect: dict[str, float] | float | None = None
    pairs: list[tuple[str, str]] = field(default_factory=list)
    seeds_of: dict[str, int] = field(default_factory=dict)
    schedules: list[tuple[str, str]] = field(default_factory=list)
    secondary: int = 0
    part_of: str | None = None
    extension: dict[str, Any] | None = None

    @property
    def by_schedule(self) -> list[tuple[str, str]]:
        """The model and softmax, by the recipe's schedule and by each other one that both were trained by."""
        return [(self.model, BASELINE), *self.schedules]

    @property
    def asked_about(self) -> frozenset[str]:
        """The model, and the arms that are compared with more than softmax: controls and pairs."""
        return frozenset([self.model, *self.controls]).union(*self.pairs)

    def extended(self, spread: float | None) -> "Claim":
        """With the seeds of the plan's extension (``seeds``, of softmax, the model and those in ``also``) where the
        standard deviation of the planned seeds' gains is above its ``spread``."""
        if self.extension is None or spread is None or spread <= self.extension["spread"]:
            return self
        seeds = self.extension["seeds"]
        return replace(self, seeds=seeds, seeds_of=self.seeds_of | dict.fromkeys(self.extension["also"], seeds))

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
        """How many seeds the plan has of an arm: 1 to this."""
        if arm in (BASELINE, self.model):
            return self.seeds
        return (self.controls | self.seeds_of).get(arm, _SEEDS_OF_OTHERS)

    def effect(self, metric: str) -> float:
        """``D``: the gain between two scores, the paper's of this row or others, or a number on the scale of the
        comparisons."""
        given = self.paper or self.smallest_effect
        if not isinstance(given, dict):
            return given
        return on_scale(metric, given["model"]) - on_scale(metric, given["baseline"])


@dataclass(frozen=True)
class Gate:
    """``trained``: yes, no, or None where something that it needs is missing; ``reasons`` has a line for each part.
    ``last_gain``: the most that the last tenth of training gained, in any seed."""

    trained: bool | None
    reasons: tuple[str, ...]
    last_gain: float | None


@dataclass(frozen=True)
class Comparison:
    """``model`` against ``other``: over the seeds that both finished the mean score of each, and the gains by seed;
    their mean and its test against no gain, and those against ``D`` on either side. ``holm`` is the p value of a
    secondary comparison, corrected over all of its plan; None of the primary."""

    model: str
    other: str
    labels: tuple[str, str]
    means: tuple[float, float]
    gains: dict[int, float]
    gain: Difference
    spread: float | None
    against_effect: Equivalence | None
    primary: bool
    holm: float | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.gains)

    def less(self, other: "Comparison") -> tuple[tuple[int, ...], Difference] | None:
        """The seeds that both have, and by how much it gains more in them than ``other``; None without such seeds."""
        seeds = tuple(sorted(set(self.gains) & set(other.gains)))
        own, others = ({seed: one.gains[seed] for seed in seeds} for one in (self, other))
        return (seeds, difference(own, others)) if seeds else None


@dataclass(frozen=True)
class Finding:
    """All that is said of a claim. The first comparison is that of its model with softmax; until that has the plan's
    seeds, ``verdict`` is None and ``inside`` and ``weights`` are empty. The others are left out until their arm has its
    own."""

    claim: Claim
    metric: str
    effect: float
    verdict: str | None
    gate: Gate
    comparisons: tuple[Comparison, ...]
    inside: tuple[QuantityInside, ...]
    weights: tuple[Weights, ...]

    @property
    def whole(self) -> bool:
        """Whether the plan's seeds are there. Before, no comparison is shown: a look at half of them would be a choice
        of when to stop."""
        return self.verdict is not None

    @property
    def against_baseline(self) -> tuple[Comparison, ...]:
        """The comparisons with softmax, the primary one first."""
        return tuple(one for one in self.comparisons if one.other == self.comparisons[0].other)


def share_lower(gain: Any) -> Any:
    """``1 - PPL(model) / PPL(baseline)`` of the gain of a perplexity: ``1 - exp(-gain)``."""
    return -np.expm1(-gain)


def on_scale(metric: str, value: float) -> float:
    """The scale of gains: ``-ln`` of a perplexity, other scores turned so that more is better."""
    return -math.log(value) if metric in IN_PERCENT else turned(metric, value)


@cache
def read_claims() -> dict[str, Claim]:
    """Experiment to claim, from ``configs/claims.yaml``."""
    entries = yaml.safe_load((CONFIGS / "claims.yaml").read_text(encoding="utf-8"))
    return {name: Claim(name, **entry) for name, entry in entries.items()}


def findings(results: Path, aggregates: Sequence[Aggregate]) -> dict[str, Finding]:
    """What ``aggregates``, read from ``results``, say of each claim, by its experiment; a claim is left out until
    softmax and the model have a seed that both finished."""
    there = {found.experiment: found for found in aggregates}
    said = {name: _finding(results, claim, there) for name, claim in read_claims().items() if name in there}
    return _corrected({name: found for name, found in said.items() if found})


def compared(aggregate: Aggregate, said: Mapping[str, Finding]) -> Aggregate:
    """``aggregate`` with the rows that may be compared: of a claim the arms that have the plan's seeds, and none until
    the primary comparison has them."""
    if aggregate.experiment not in read_claims():
        return aggregate
    found = said.get(aggregate.experiment)
    arms = {arm for one in found.comparisons for arm in (one.model, one.other)} if found and found.whole else ()
    planned = found.claim.planned(aggregate) if found else aggregate
    return replace(planned, rows=tuple(row for row in planned.rows if row.arm in arms))


def held_back(aggregate: Aggregate, said: Mapping[str, Finding]) -> Aggregate:
    """``aggregate`` with all its scores, and without a test of the arms that :func:`compared` leaves out."""
    ready = {row.key for row in compared(aggregate, said).rows}
    return replace(aggregate, untested=frozenset({row.key for row in aggregate.rows} - ready))


def _finding(results: Path, claim: Claim, there: Mapping[str, Aggregate]) -> Finding | None:
    planned = claim.planned(there[claim.experiment])
    primary = _primary(claim, planned)
    if primary and all(_whole(row, claim.seeds) for row in _both(claim, planned)):
        claim = claim.extended(primary.spread)
        planned = claim.planned(there[claim.experiment])
        primary = _primary(claim, planned)
    if primary is None:
        return None
    both = model, baseline = _both(claim, planned)
    arms = [row for row in planned.rows if row not in both and _whole(row, claim.seeds_for(row.arm))]
    named = {row.arm: row for row in (model, *arms)}
    pairs = [(claim.model, control) for control in claim.controls] + claim.pairs
    others = [(row, baseline) for row in arms]
    others += [(named[one], named[other]) for one, other in pairs if one in named and other in named]
    found = [_compare(claim, planned.metric, *pair) for pair in others]
    trained = gate(baseline, _references(results, claim, there))
    whole = all(_whole(row, claim.seeds) for row in both)
    said = (SECONDARY if claim.part_of else verdict(primary, trained)) if whole else None
    shown = [baseline, model, *arms]
    analyses = store.read_runs(results, [record for row in shown for record in row.finished]) if whole else {}
    return Finding(
        claim=claim,
        metric=planned.metric,
        effect=claim.effect(planned.metric),
        verdict=said,
        gate=trained,
        comparisons=(primary, *filter(None, found)),
        inside=inside(analyses, planned, model) if whole else (),
        weights=weights(analyses, shown),
    )


def _both(claim: Claim, planned: Aggregate) -> tuple[Row, Row] | None:
    """The model and softmax, where each has a finished seed."""
    model, baseline = planned.row_of(claim.model, seeds=1), planned.baseline
    return (model, baseline) if model and baseline and baseline.finished else None


def _primary(claim: Claim, planned: Aggregate) -> Comparison | None:
    both = _both(claim, planned)
    return both and _compare(claim, planned.metric, *both, primary=not claim.part_of)


def _whole(row: Row, seeds: int) -> bool:
    """Whether the plan's seeds have ended: one that diverged has, one that failed is run again."""
    ended = {record["seed"] for record in row.records if record["status"] != "failed"}
    return ended.issuperset(range(1, seeds + 1))


def verdict(primary: Comparison, trained: Gate) -> str:
    """As the plans say: supported where the gain's interval lies above 0, and it is said where a gain of ``D`` is
    excluded as well; contradicted where that alone is; else inconclusive. None of them where the models are not
    trained."""
    if trained.trained is not True:
        return TRAINING_UNKNOWN if trained.trained is None else NOT_TRAINED
    smaller = primary.against_effect is not None and primary.against_effect.excludes_above
    if primary.gain.low is not None and primary.gain.low > 0:
        return SUPPORTED_SMALLER if smaller else SUPPORTED
    return CONTRADICTED if smaller else INCONCLUSIVE


def _compare(claim: Claim, metric: str, row: Row, other: Row, primary: bool = False) -> Comparison | None:
    """None without a seed that both finished."""
    of_model, of_other = row.values(metric), other.values(metric)
    if not (seeds := sorted(set(of_model) & set(of_other))):
        return None
    one, two = ({seed: on_scale(metric, found[seed]) for seed in seeds} for found in (of_model, of_other))
    gains = {seed: one[seed] - two[seed] for seed in seeds}
    return Comparison(
        model=row.arm,
        other=other.arm,
        labels=(row.label, other.label),
        means=tuple(fmean(found[seed] for seed in seeds) for found in (of_model, of_other)),
        gains=gains,
        gain=difference(one, two),
        spread=summarise(list(gains.values())).sd,
        against_effect=equivalence(one, two, claim.effect(metric)),
        primary=primary,
    )


def _corrected(said: Mapping[str, Finding]) -> dict[str, Finding]:
    """With Holm's correction over all secondary comparisons of a plan, those of a claim and of its parts: one that is
    not made yet, or never can be, counts with p = 1. So what joins later hardly moves the others."""
    families: dict[str, dict[tuple[str, int], float | None]] = {}
    for name, found in said.items():
        if found.whole:
            tests = {(name, index): one.gain.p_value for index, one in enumerate(found.comparisons) if not one.primary}
            families.setdefault(found.claim.part_of or name, {}).update(tests)
    for plan, tests in families.items():
        tests |= {(plan, -index): None for index in range(1, read_claims()[plan].secondary - len(tests) + 1)}
    corrected = {key: p_value for family in families.values() for key, p_value in holm(family).items()}
    return {
        name: replace(
            found,
            comparisons=tuple(
                replace(one, holm=corrected.get((name, index))) for index, one in enumerate(found.comparisons)
            ),
        )
        for name, found in said.items()
    }


def last_gain(record: Record) -> float | None:
    """By how much of itself validation perplexity per token fell in the last tenth of training: ``1 - P(1) / P(0.9)``,
    ``P(0.9)`` of the last validation before that tenth. None without one, or where the end was not validated."""
    perplexities = validation(record)
    before = [update for update in perplexities if 10 * update <= 9 * record["updates"]]
    if record["updates"] not in perplexities or not before:
        return None
    return 1 - perplexities[record["updates"]] / perplexities[max(before)]


def gate(baseline: Row, references: Mapping[str, float | None]) -> Gate:
    """Whether the models of an experiment are trained: softmax beats every reference row on the same test set, and the
    last tenth of its training gained less than :data:`MOST_GAIN` of the validation perplexity.

    ``references`` maps the name of each reference row to its headline number, None where it is not there yet.
    """
    parts: list[tuple[bool | None, str]] = []
    metric = TASKS[baseline.records[0]["task"]].headline
    mean = baseline.summary(metric).mean
    for name, score in references.items():
        if mean is None or score is None:
            parts.append((None, f"{name}: not there yet"))
        else:
            better = turned(metric, mean) > turned(metric, score)
            parts.append((better, f"{baseline.label} {mean:.2f} against {name} {score:.2f}"))
    gains = [last_gain(record) for record in baseline.finished]
    most = max(gains) if gains and None not in gains else None
    if most is None:
        parts.append((None, "the last tenth of training: not known"))
    else:
        gained = f"at most {100 * most:.2f} %" if most > 0 else f"nothing ({100 * most:.2f} %)"
        parts.append((most < MOST_GAIN, f"the last tenth of training gained {gained}"))
    known = [part for part, _ in parts]
    trained = False if False in known else None if None in known else True
    return Gate(trained, tuple(reason for _, reason in parts), most)


def _references(results: Path, claim: Claim, there: Mapping[str, Aggregate]) -> dict[str, float | None]:
    """The headline numbers of the reference rows; None for one that is not there yet, or was scored otherwise."""
    aggregate, ngram = there[claim.experiment], claim.references["ngram"]
    found: dict[str, float | None] = {}
    for experiment, model in claim.references["runs"].items():
        alike = experiment in there and not there[experiment].reference.scored_otherwise(aggregate.reference)
        row = there[experiment].row_of(model, seeds=1) if alike else None
        found[row.label if row else model] = row.summary(aggregate.metric).mean if row else None
    if ngram is not None:
        found[f"{ngram}-gram"] = reference_score(results, aggregate, ngram)
    return found


def reference_score(results: Path, aggregate: Aggregate, order: int) -> float | None:
    """What an n-gram model of that order reaches on the test set of the experiment; None until it was counted."""
    run = aggregate.reference
    found = store.read(reference_file(results, run["data"], run.config.get("preprocessing", {}), order))
    return found and found[aggregate.metric]


def as_json(found: Finding) -> str:
    """For ``<results>/comparisons/<experiment>.json``."""
    return json.dumps(asdict(found), indent=2, allow_nan=False) + "\n"
