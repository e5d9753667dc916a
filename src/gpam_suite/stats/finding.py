"""What an experiment says of a claim: the comparisons of its plan, computed once and saved."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from gpam_suite.evaluate.kneser_ney import reference_file
from gpam_suite.records import store
from gpam_suite.stats.claim import Claim, on_scale, read_claims, secondary_of
from gpam_suite.stats.curves import scored_validation
from gpam_suite.stats.gate import Gate, gate
from gpam_suite.stats.inside_claim import OverArms, QuantityInside, Weights, inside, over_arms, weights
from gpam_suite.stats.over_seeds import CONFIDENCE, Difference, Equivalence, difference, equivalence, holm, summarise
from gpam_suite.stats.rows import Aggregate, Row

SUPPORTED, CONTRADICTED, INCONCLUSIVE, SECONDARY = "supported", "contradicted", "inconclusive", "none: secondary"
SUPPORTED_SMALLER = "supported, but smaller: a gain of the size claimed is excluded"
NOT_TRAINED, TRAINING_UNKNOWN = "none: not trained enough", "none: not known whether trained"


@dataclass(frozen=True)
class Comparison:
    """``model`` against ``other``: over the seeds that both finished the mean score of each, and the gains by seed;
    their mean and its test against no gain, and those against ``D`` on either side. ``validation``, which no plan has,
    is the gain in ``ln PPL`` of the scored checkpoints on the validation set. ``holm`` is the p value of a secondary
    comparison, corrected over all of its plan; None of the primary."""

    model: str
    other: str
    labels: tuple[str, str]
    means: tuple[float, float]
    gains: dict[int, float]
    gain: Difference
    spread: float | None
    against_effect: Equivalence | None
    validation: Difference | None
    primary: bool
    holm: float | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(self.gains)

    @property
    def shown(self) -> bool:
        """Whether there is a difference at the five percent level, of a secondary comparison after the correction."""
        p_value = self.gain.p_value if self.primary else self.holm
        return p_value is not None and p_value < 1 - CONFIDENCE

    def gains_more_than(self, other: "Comparison") -> tuple[tuple[int, ...], Difference] | None:
        """The seeds that both have, and by how much it gains more in them than ``other``; None without such seeds."""
        seeds = tuple(sorted(set(self.gains) & set(other.gains)))
        own, others = ({seed: one.gains[seed] for seed in seeds} for one in (self, other))
        return (seeds, difference(own, others)) if seeds else None


@dataclass(frozen=True)
class Finding:
    """All that is said of a claim. The first comparison is that of its model with softmax; until that has the plan's
    seeds, ``verdict`` is None and what is inside models is empty. The others are left out until their arm has its
    own."""

    claim: Claim
    metric: str
    effect: float
    verdict: str | None
    gate: Gate
    comparisons: tuple[Comparison, ...]
    inside: tuple[QuantityInside, ...]
    weights: tuple[Weights, ...]
    over_arms: tuple[OverArms, ...]

    @property
    def whole(self) -> bool:
        """Whether the plan's seeds are there. Before, no comparison is shown: a look at half of them would be a choice
        of when to stop."""
        return self.verdict is not None

    @property
    def unplanned(self) -> int:
        """How many comparisons are of arms that the plan has not."""
        return sum(not self.claim.is_planned(one.model) for one in self.comparisons)

    @property
    def against_baseline(self) -> tuple[Comparison, ...]:
        """The comparisons with softmax, the primary one first."""
        return tuple(one for one in self.comparisons if one.other == self.comparisons[0].other)


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
    made = (primary, *filter(None, (_compare(claim, planned.metric, *pair) for pair in others)))
    trained = gate(baseline, _references(results, claim, there))
    whole = all(_whole(row, claim.seeds) for row in both)
    said = (SECONDARY if claim.part_of else verdict(primary, trained)) if whole else None
    shown = [baseline, model, *arms]
    analyses = store.read_runs(results, [record for row in shown for record in row.finished]) if whole else {}
    gains = {named[one.model]: one.gain.estimate for one in made if one.other == baseline.arm}
    return Finding(
        claim=claim,
        metric=planned.metric,
        effect=claim.effect(planned.metric),
        verdict=said,
        gate=trained,
        comparisons=made,
        inside=inside(analyses, planned, model) if whole else (),
        weights=weights(analyses, shown),
        over_arms=over_arms(analyses, baseline, gains) if whole else (),
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
    logs = [_of_validation(side, seeds) for side in (row, other)]
    return Comparison(
        model=row.arm,
        other=other.arm,
        labels=(row.label, other.label),
        means=tuple(fmean(found[seed] for seed in seeds) for found in (of_model, of_other)),
        gains=gains,
        gain=difference(one, two),
        spread=summarise(list(gains.values())).sd,
        against_effect=equivalence(one, two, claim.effect(metric)),
        validation=difference(*logs) if all(logs) else None,
        primary=primary,
    )


def _of_validation(row: Row, seeds: Collection[int]) -> dict[int, float]:
    """``-ln PPL`` of the scored checkpoints, on the validation set."""
    known = row.by_seed(scored_validation).items()
    return {seed: on_scale("test_perplexity", value) for seed, value in known if seed in seeds}


def _corrected(said: Mapping[str, Finding]) -> dict[str, Finding]:
    """With Holm's correction over all secondary comparisons of a plan, those of all its claims: one that is not made
    yet, or never can be, counts with p = 1, so what joins later hardly moves the others. What is compared and was not
    planned counts beside them."""
    families: dict[str, dict[tuple[str, int], float | None]] = {}
    unplanned: Counter[str] = Counter()
    for name, found in said.items():
        if found.whole:
            tests = {(name, index): one.gain.p_value for index, one in enumerate(found.comparisons) if not one.primary}
            families.setdefault(found.claim.family, {}).update(tests)
            unplanned[found.claim.family] += found.unplanned
    for family, tests in families.items():
        missing = secondary_of(family) + unplanned[family] - len(tests)
        tests |= {(family, -index): None for index in range(1, missing + 1)}
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
