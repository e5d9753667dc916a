"""Figures over several experiments, for the published pages. A colour is one model in all of them."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from gpam_suite.common import formatting
from gpam_suite.records.metrics import LOWER_IS_BETTER, turned
from gpam_suite.report.model_looks import MODELS, look_of, look_of_model
from gpam_suite.report.plotting import BASELINE_DASH, Plot, band, legend_below, logarithmic, some_panels
from gpam_suite.report.provenance import FROM_RECORDS
from gpam_suite.report.tables import metric_title
from gpam_suite.stats.aggregate import BASELINE, FIXED, Aggregate, Row
from gpam_suite.stats.curves import Curve, learning_curve, title
from gpam_suite.stats.sweep import find_sweeps, rows_sum

DRAWN = MODELS[1:]
_ACROSS = 3
_FEW = 8  # quartiles of fewer values say nothing


def gains(titles: Mapping[str, str], aggregates: Sequence[Aggregate], name: str) -> Plot | None:
    """Paired differences to softmax, experiments below each other; those with too few seeds are left out."""
    sides = {
        found.experiment: {model: own for model in DRAWN if (row := found.row_of(model)) and (own := _gain(found, row))}
        for found in aggregates
    }
    drawn = [found for found in aggregates if sides[found.experiment]]
    if not drawn:
        return None
    ends = [end for found in drawn for own in sides[found.experiment].values() for end in own if end is not None]
    low, high = fences([*ends, 0.0])
    margin = 0.06 * (high - low) or 0.5  # so that marks at the ends are whole
    low, high = low - margin, high + margin
    labels = {model: found.row_of(model).label for found in drawn for model in sides[found.experiment]}

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for model, label in labels.items():
            axes.plot([], [], **{**look_of_model(model), "linestyle": "none"}, label=label)
        for index, found in enumerate(drawn):
            own = sides[found.experiment]
            for place, (model, one) in enumerate(own.items()):
                at, style = index + 0.36 * (place - (len(own) - 1) / 2), look_of_model(model)
                known = [end for end in one if end is not None]
                axes.plot([one[0]], [at], **{**style, "linestyle": "none"}, zorder=3)
                axes.plot([min(known), max(known)], [at, at], color=style["color"], linewidth=1.3, zorder=2)
                for end, beyond, arrow in ((low, min(known) < low, "<"), (high, max(known) > high, ">")):
                    if beyond:
                        axes.plot([end], [at], color=style["color"], marker=arrow, clip_on=False, zorder=4)
                words = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7, "color": style["color"]}
                axes.annotate(formatting.estimate(*one, 1), (1.02, at), **words)
        axes.axvline(0, color="#000000", linestyle=BASELINE_DASH, linewidth=0.8, zorder=1)
        axes.set_xlim(low, high)
        axes.set_yticks(range(len(drawn)), [_named(titles, found) for found in drawn], fontsize=7)
        axes.set_ylim(len(drawn) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("Better than softmax by, in percent of its score")
        legend_below(figure)

    caption = (
        "Differences to softmax, paired by seed, in percent of softmax's test score; to the right is better. Mean over "
        f"seeds with its 95 % interval (t), not corrected for how many there are. Arrows: it goes on. {_seeds(drawn)}"
    )
    return Plot(name, caption, 0.9 + 0.42 * len(drawn), paint)


def fences(values: Sequence[float]) -> tuple[float, float]:
    """The least and the largest of ``values`` that lie within three quartile ranges of the quartiles (Tukey's outer
    fences, 1977): what an axis should hold where a few far-off values would press all others together."""
    if len(values) < _FEW:
        return min(values), max(values)
    first, third = np.percentile(values, [25, 75])
    reach = 3 * (third - first)
    inside = [value for value in values if first - reach <= value <= third + reach]
    return min(inside), max(inside)


def _gain(found: Aggregate, row: Row) -> tuple[float, float | None, float | None] | None:
    """What ``row`` gains over softmax, in percent of softmax's mean score, above zero better, and its 95 % interval."""
    over_seeds = found.difference(row)
    if over_seeds is None or not (mean := found.baseline.summary(found.metric).mean):
        return None
    ends = over_seeds.estimate, over_seeds.low, over_seeds.high
    estimate, *bounds = (None if end is None else 100 * turned(found.metric, end) / mean for end in ends)
    return estimate, *(bounds if None in bounds else sorted(bounds))


def curves(titles: Mapping[str, str], aggregates: Sequence[Aggregate], name: str) -> Plot | None:
    """Validation over training, a panel an experiment: is training over?"""
    panels = []
    for found in aggregates:
        rows = [row for model in (BASELINE, *DRAWN) if (row := found.row_of(model))]
        if drawn := [(row, curve) for row in rows if (curve := learning_curve(row))]:
            panels.append((found, drawn))
    caption = (
        "Validation during training: mean (line) and range (band) over seeds; a mark is a validation. Training is over "
        f"where a curve is flat at its end. {_seeds([found for found, _ in panels])}"
    )
    return curve_panels(titles, panels, name, caption) if panels else None


def curve_panels(
    titles: Mapping[str, str], panels: Sequence[tuple[Aggregate, list[tuple[Row, Curve]]]], name: str, caption: str
) -> Plot:
    """Learning curves, a panel an experiment."""
    across = min(_ACROSS, len(panels))
    lines = -(-len(panels) // across)

    def paint(figure: Figure) -> None:
        grid = some_panels(figure, len(panels), lines, across)
        for axes, (found, drawn) in zip(grid, panels, strict=True):
            for row, curve in drawn:
                band(axes, curve.updates, curve.values, look_of(found, row), row.label)
            logarithmic(axes.yaxis)
            axes.set_title(titles[found.experiment].replace(", ", ",\n"), fontsize=8)
            axes.set_xlabel("Updates", fontsize=8)
            axes.set_ylabel(title(found.task).replace(" per ", "\nper ") + " (log scale)", fontsize=7)
            axes.tick_params(labelsize=7)
        legend_below(figure)

    return Plot(name, caption, 0.6 + 2.2 * lines, paint)


def sums(titles: Mapping[str, str], aggregates: Sequence[Aggregate], name: str) -> Plot | None:
    """The grids of lambdas: the score against what a row of weights sums to."""
    panels = []
    for found in aggregates:
        rows = [row for sweep in find_sweeps(found.rows) if sweep.model == FIXED for row in sweep.rows if row.finished]
        if rows:
            panels.append((found, [(rows_sum(row), row.summary(found.metric).mean) for row in rows]))
    if not panels:
        return None

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(panels), squeeze=False)[0]
        for axes, (found, points) in zip(grid, panels, strict=True):
            values = list(found.baseline.values(found.metric).values())
            axes.axhspan(min(values), max(values), color="#000000", alpha=0.12, linewidth=0)
            axes.axhline(
                sum(values) / len(values), color="#000000", linestyle=BASELINE_DASH, linewidth=1, label="softmax"
            )
            axes.plot(
                *zip(*points, strict=True),
                **{**look_of_model(FIXED), "linestyle": "none"},
                label="daGPAM, one seed a point",
            )
            better = "lower" if found.metric in LOWER_IS_BETTER else "higher"
            axes.set_title(titles[found.experiment], fontsize=8)
            axes.set_xlabel(r"Sum of a row of weights, $1 + \lambda_+ - \lambda_-$")
            axes.set_ylabel(f"{metric_title(found)} ({better} is better)", fontsize=8)
            if found.metric in LOWER_IS_BETTER and max(value for _, value in points) > 2 * min(values):
                logarithmic(axes.yaxis)
        legend_below(figure)

    caption = (
        "Grids of fixed lambdas, a mark a trained model: the score against what its rows of weights sum to. The dashed "
        f"line is softmax, its band the range of its seeds. {_seeds([found for found, _ in panels])}"
    )
    return Plot(name, caption, 3.2, paint)


def _named(titles: Mapping[str, str], found: Aggregate) -> str:
    return f"{titles[found.experiment]}\n{metric_title(found).removeprefix('Test ')}"


def _seeds(drawn: Sequence[Aggregate]) -> str:
    seeds = sorted({seed for found in drawn for row in found.rows for seed in row.seeds})
    return f"Seeds: {formatting.listed(seeds)}. {FROM_RECORDS}"
