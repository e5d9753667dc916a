"""The figures of a claim's trainings: validation, and what a model is ahead of softmax by at each of them."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpam_suite.records.metrics import IN_PERCENT
from gpam_suite.report.model_looks import MODELS, look_of
from gpam_suite.report.panels.gains import effect_line
from gpam_suite.report.plotting import BASELINE_DASH, Plot, band, legend_below, logarithmic
from gpam_suite.report.provenance import FROM_RECORDS
from gpam_suite.stats.claim import share_lower
from gpam_suite.stats.curves import Curve, learning_curve, title
from gpam_suite.stats.finding import Finding
from gpam_suite.stats.rows import Aggregate, Row


def trainings(aggregate: Aggregate, said: Finding, name: str) -> Plot | None:
    """Of softmax and those of :data:`MODELS` that ``said`` compares; None where a side was not validated twice."""
    baseline = aggregate.baseline
    compared = {one.model for one in said.comparisons}
    drawn = filter(None, (aggregate.row_of(model, seeds=1) for model in MODELS if model in compared))
    curves = {row: curve for row in (baseline, *drawn) if (curve := learning_curve(row))}
    if baseline not in curves or len(curves) < 2:
        return None

    def paint(figure: Figure) -> None:
        perplexity, ahead = figure.subplots(1, 2)
        for row, curve in curves.items():
            band(perplexity, curve.updates, curve.values, look_of(aggregate, row), row.label)
        logarithmic(perplexity.yaxis)
        perplexity.set_title(f"{title(aggregate.task)} (log scale)")
        _leads(ahead, aggregate, said, [(row, baseline) for row in curves if row is not baseline], curves)
        ahead.set_title("Percent below softmax of the same seed")
        for axes in (perplexity, ahead):
            axes.set_xlabel("Updates")
        legend_below(figure)

    what = (
        f"{said.claim.title}. Validation during training: mean (line) and range (band) over seeds; a mark is a "
        "validation. Left: the perplexity. Right: by how much it is below softmax's of the same seed; a table's gains "
        f"are of the test set and the checkpoints that are scored. {FROM_RECORDS}"
    )
    return Plot(name, what, 3.4, paint)


def by_schedule(aggregate: Aggregate, said: Finding, name: str) -> Plot | None:
    """What the claim's model, and softmax by another schedule, are ahead of softmax by: of softmax by the recipe's
    schedule, and each schedule for itself; None where there is only one."""
    rows = {row.arm: row for row in aggregate.rows}
    pairs = [(rows[one], rows[other]) for one, other in said.claim.by_schedule if {one, other} <= rows.keys()]
    curves = {row: curve for pair in pairs for row in pair if (curve := learning_curve(row))}
    pairs = [(row, other) for row, other in pairs if row in curves and other in curves]
    if len(pairs) < 2:
        return None

    def paint(figure: Figure) -> None:
        of_one, of_each = figure.subplots(1, 2, sharey=True)
        baseline = aggregate.baseline
        _leads(of_one, aggregate, said, [(row, baseline) for row in curves if row is not baseline], curves)
        of_one.set_title("Percent below softmax, recipe's schedule")
        _leads(of_each, aggregate, said, pairs, curves)
        of_each.set_title("Percent below softmax, same schedule")
        for axes in (of_one, of_each):
            axes.set_xlabel("Updates")
        legend_below(figure)

    what = (
        f"{said.claim.title}, two schedules. By how much validation perplexity is below softmax's of the same seed: "
        "mean (line) and range (band) over seeds; a mark is a validation. Left: softmax by the recipe's schedule; "
        f"right: by the same schedule. {FROM_RECORDS}"
    )
    return Plot(name, what, 3.2, paint)


def _leads(
    ahead: Axes, aggregate: Aggregate, said: Finding, pairs: Sequence[tuple[Row, Row]], curves: Mapping[Row, Curve]
) -> None:
    """What each first row of ``pairs`` is ahead of the second by, and lines at no gain and at the paper's."""
    for row, other in pairs:
        gains = _ahead((row, curves[row]), (other, curves[other]))
        band(ahead, gains.updates, gains.values, look_of(aggregate, row), row.label)
    ahead.axhline(0, color="#000000", linestyle=BASELINE_DASH, linewidth=0.8)
    if said.claim.paper and aggregate.metric in IN_PERCENT:  # other claims' effects are not per token
        ahead.axhline(100 * share_lower(said.effect), **effect_line(said.claim))


def _ahead(own: tuple[Row, Curve], other: tuple[Row, Curve]) -> Curve:
    """By how many percent a row is lower than another, seed by seed, where both validated."""
    seeds = sorted(set(own[0].seeds) & set(other[0].seeds))
    updates = sorted(set(own[1].updates) & set(other[1].updates))
    lower, base = (
        curve.values[np.ix_([row.seeds.index(seed) for seed in seeds], np.isin(curve.updates, updates))]
        for row, curve in (own, other)
    )
    return Curve(np.array(updates), 100 * share_lower(np.log(base / lower)))
