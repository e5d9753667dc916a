"""What happens inside the trained models of a claim: what the rows of weights of every arm sum to, what is inside
softmax's and the model's, and whether any of it goes with the score, over runs and over arms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy import stats

from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record
from gpam_suite.records.history_rows import mean_of
from gpam_suite.records.metrics import turned
from gpam_suite.stats.over_seeds import Difference, difference, holm
from gpam_suite.stats.rows import Aggregate, Row

_SOFTMAX = "Softmax"  # the class, by its name in records: to import it loads torch
ENOUGH_RUNS = 5  # fewer cannot be ranked in a way that would be rare by chance
_ORDERS = 50_000  # drawn where there are more orders of the runs; those of eight are fewer
OF_TOKENS = {  # of an analysis, and how each is called
    "residual": "Relative residual",
    "cosine": "Mean cosine",
    "stable_rank": "Stable rank",
    "effective_rank": "Effective rank",
}
Analysis = Mapping[str, Any]


def _quantities(record: Record, analysis: Analysis | None) -> dict[str, float | None]:
    """Of a run, by what they are called: means over modules (and heads); gradients are medians over training."""
    both = {"encoder": "encoder's ", "decoder": "decoder's "}
    of_stacks = both if TASKS[record["task"]].parallel else {"decoder": ""}
    pos, neg = (mean_of(record.at("learned_scalars"), name) for name in ("lambda_pos", "lambda_neg"))
    return {
        "lambda+": pos,
        "lambda-": neg,
        "Sum of a row, 1 + lambda+ - lambda-": None if pos is None or neg is None else 1 + pos - neg,
        "Share of negative weight": _of_weights(record, analysis, "negative_mass") if analysis else None,
        **{
            f"{what} behind the {whose}last layer": analysis["streams"][stack][name][-1] if analysis else None
            for stack, whose in of_stacks.items()
            for name, what in OF_TOKENS.items()
        },
        "Gradient norm of the query projections": mean_of(record.at("gradient_norms"), "query"),
    }


def _of_weights(record: Record, analysis: Analysis, name: str) -> float:
    """Of the modules that have the mechanism, where softmax stands in others."""
    modules, kinds = analysis["modules"], record["attention_modules"]
    own = [path for path in modules if kinds.get(path) != _SOFTMAX] or modules
    return fmean(value for path in own for value in modules[path][name])


@dataclass(frozen=True)
class Weights:
    """What a row of weights sums to in the models of a row of the table, and its share of negative weight: means over
    queries, heads, the modules that have the mechanism, and seeds."""

    label: str
    row_sum: float
    negative: float


def weights(analyses: Mapping[Path, Analysis], rows: Iterable[Row]) -> tuple[Weights, ...]:
    """Of each row whose finished runs were all looked into (``make analyse``)."""
    found = []
    for row in rows:
        looked = [(record, analyses[record.folder]) for record in row.finished if record.folder in analyses]
        if row.finished and len(looked) == len(row.finished):
            means = [fmean(_of_weights(*one, name) for one in looked) for name in ("row_sum", "negative_mass")]
            found.append(Weights(row.label, *means))
    return tuple(found)


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's ``rho`` and its two-sided p value under all orders of the runs (of many, drawn ones), corrected by
    Holm's method."""

    rho: float
    p_value: float


@dataclass(frozen=True)
class QuantityInside:
    """A quantity by seed in softmax's runs and in the model's, the difference, and how each goes with the score of its
    runs: ``rho`` above 0 where runs with more of it score better; None below :data:`ENOUGH_RUNS`."""

    quantity: str
    base: dict[int, float]
    own: dict[int, float]
    difference: Difference | None
    with_score: tuple[RankCorrelation | None, RankCorrelation | None]


def inside(analyses: Mapping[Path, Analysis], aggregate: Aggregate, row: Row) -> tuple[QuantityInside, ...]:
    """What is inside the runs of ``row``, beside softmax's; ``analyses`` has what ``make analyse`` found, by the folder
    of a run."""
    rows = aggregate.baseline, row
    of_base, of_row = (_by_seed(one, analyses) for one in rows)
    scores = [
        {seed: turned(aggregate.metric, score) for seed, score in one.values(aggregate.metric).items()} for one in rows
    ]
    found = []
    for quantity, own in of_row.items():
        base = of_base[quantity]
        if own:
            going = tuple(rank_correlation(*both) for both in zip((base, own), scores, strict=True))
            found.append(QuantityInside(quantity, base, own, difference(own, base) if base else None, going))
    return holm_corrected(found)


@dataclass(frozen=True)
class OverArms:
    """Spearman's ``rho`` over ``arms``: above 0 where arms that have more of a quantity than softmax gain more over it.
    No p value: many arms share their seeds, or are one mechanism."""

    quantity: str
    arms: int
    rho: float


def over_arms(analyses: Mapping[Path, Analysis], baseline: Row, gains: Mapping[Row, float]) -> tuple[OverArms, ...]:
    """Of each quantity that softmax has too, and :data:`ENOUGH_RUNS` arms or more; ``gains`` are those over softmax,
    and a quantity is read as they are, over the seeds that an arm and softmax both finished."""
    of_softmax = _by_seed(baseline, analyses)
    more = {
        row: {
            quantity: difference(values, of_softmax[quantity]).estimate
            for quantity, values in _by_seed(row, analyses).items()
            if values and of_softmax[quantity]
        }
        for row in gains
    }
    found = []
    for quantity in of_softmax:
        arms = [row for row in gains if quantity in more[row]]
        sides = [more[row][quantity] for row in arms], [gains[row] for row in arms]
        if len(arms) >= ENOUGH_RUNS and min(len(set(side)) for side in sides) > 1:
            found.append(OverArms(quantity, len(arms), float(stats.spearmanr(*sides).statistic)))
    return tuple(found)


def _by_seed(row: Row, analyses: Mapping[Path, Analysis]) -> dict[str, dict[int, float]]:
    """Of each quantity what is known of it in the row's runs."""
    known = {record: _quantities(record, analyses.get(record.folder)) for record in row.finished}
    return {
        quantity: row.by_seed(lambda record, quantity=quantity: known[record][quantity])
        for quantity in next(iter(known.values()), {})
    }


def rank_correlation(values: Mapping[int, float], scores: Mapping[int, float]) -> RankCorrelation | None:
    """Of the seeds that both have; None where these are few, or all values or scores are equal."""
    seeds = sorted(set(values) & set(scores))
    one, two = (stats.rankdata([side[seed] for seed in seeds]) for side in (values, scores))
    if len(seeds) < ENOUGH_RUNS or min(len(set(one)), len(set(two))) == 1:
        return None
    orders = stats.PermutationMethod(n_resamples=_ORDERS, rng=np.random.default_rng(1))
    tested = stats.pearsonr(one, two, method=orders)
    return RankCorrelation(float(tested.statistic), float(tested.pvalue))


def holm_corrected(found: list[QuantityInside]) -> tuple[QuantityInside, ...]:
    """With Holm's correction over all rank correlations."""
    sides = {(row.quantity, side): one for row in found for side, one in enumerate(row.with_score) if one}
    p_values = holm({key: one.p_value for key, one in sides.items()})
    corrected = {key: replace(one, p_value=p_values[key]) for key, one in sides.items()}
    return tuple(
        replace(row, with_score=tuple(corrected.get((row.quantity, side)) for side in (0, 1))) for row in found
    )
