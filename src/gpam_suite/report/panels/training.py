"""The figure of a claim's trainings: validation, and what a model is ahead of softmax by at each of them."""

from collections.abc import Collection, Iterator

import numpy as np
from matplotlib.figure import Figure

from gpam_suite.records.metrics import LOWER_IS_BETTER
from gpam_suite.report.model_looks import MODELS, look_of
from gpam_suite.report.panels.gains import effect_line
from gpam_suite.report.plotting import BASELINE_DASH, Plot, band, legend_below, logarithmic
from gpam_suite.report.provenance import FROM_RECORDS
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.claim import Finding, share_lower
from gpam_suite.stats.curves import Curve, learning_curve, title


def trainings(aggregate: Aggregate, said: Finding, name: str, arms: Collection[str] = MODELS) -> Plot | None:
    """Of softmax and those of ``arms`` that ``said`` compares; None where a side was not validated twice."""
    baseline = aggregate.baseline
    compared = {one.model for one in said.comparisons}
    drawn = (row for row in aggregate.rows if row.arm in arms and row.arm in compared and row is not baseline)
    curves = {row: curve for row in (baseline, *drawn) if (curve := learning_curve(row))}
    if baseline not in curves or len(curves) < 2:
        return None

    def paint(figure: Figure) -> None:
        perplexity, ahead = figure.subplots(1, 2)
        for row, curve in curves.items():
            band(perplexity, curve.updates, curve.values, look_of(aggregate, row), row.label)
        logarithmic(perplexity.yaxis)
        perplexity.set_title(f"{title(aggregate.task)} (log scale)")
        for row, gains in _ahead(aggregate, curves):
            band(ahead, gains.updates, gains.values, look_of(aggregate, row), row.label)
        ahead.axhline(0, color="#000000", linestyle=BASELINE_DASH, linewidth=0.8)
        if said.claim.paper and aggregate.metric in LOWER_IS_BETTER:  # other claims' effects are not per token
            ahead.axhline(100 * share_lower(said.effect), **effect_line(said.claim))
        ahead.set_title("Percent below softmax of the same seed")
        for axes in (perplexity, ahead):
            axes.set_xlabel("Updates")
        legend_below(figure)

    what = (
        f"{said.claim.title}. Validation during training: mean (line) and range (band) over seeds; a mark is a "
        "validation. Left: the perplexity; a curve is flat at its end where the learning rate has fallen. Right: by "
        f"how much it is below softmax's of the same seed. {FROM_RECORDS}"
    )
    return Plot(name, what, 3.4, paint)


def _ahead(aggregate: Aggregate, curves: dict[Row, Curve]) -> Iterator[tuple[Row, Curve]]:
    """Of each row but softmax's, by how many percent it is lower, seed by seed, where both validated."""
    base = aggregate.baseline
    for row in (row for row in curves if row is not base):
        seeds = sorted(set(row.seeds) & set(base.seeds))
        updates = sorted(set(curves[row].updates) & set(curves[base].updates))
        own, softmax = (
            curves[one].values[np.ix_([one.seeds.index(seed) for seed in seeds], np.isin(curves[one].updates, updates))]
            for one in (row, base)
        )
        yield row, Curve(np.array(updates), 100 * share_lower(np.log(softmax / own)))
