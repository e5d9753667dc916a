"""The figures of an experiment, made from records and histories and nothing else: results, learning curves, sweeps."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import number, plural
from gpam_suite.records.metrics import LOWER_IS_BETTER
from gpam_suite.report.model_looks import look_of, selected
from gpam_suite.report.plotting import BASELINE_DASH, Plot, band, fences, legend_below, logarithmic, look
from gpam_suite.report.provenance import caption
from gpam_suite.report.tables import metric_title
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.curves import Curve, learning_curve, title
from gpam_suite.stats.over_seeds import ENOUGH_SEEDS, mean_interval
from gpam_suite.stats.sweep import Sweep, find_sweeps, rows_sum, symbol

_FEW_POINTS = 4  # a curve of fewer has no second half
_WIDE = 4.0  # from this ratio of largest to smallest on, perplexities are drawn on a logarithmic axis


def plots(aggregate: Aggregate) -> list[Plot]:
    """The figures an experiment has material for: results, learning curves, option sweeps."""
    found = []
    if any(row.finished for row in aggregate.rows):
        found.append(_results(aggregate))
    if curves := [(row, curve) for row in aggregate.rows if (curve := learning_curve(row))]:
        found.append(_learning_curves(aggregate, curves))
    return found + [_sweep(aggregate, sweep) for sweep in find_sweeps(aggregate.rows)]


def _caption(aggregate: Aggregate, what: str, rows: Sequence[Row], among: int = 0) -> str:
    lost = sum(len(row.lost) for row in rows)
    what += f" Not drawn: {plural(lost, 'seed')} that failed or diverged." if lost else ""
    return caption(aggregate, what, [(row, row.seeds) for row in rows], among=among)


def _score_axis(axis: Axis, aggregate: Aggregate, values: Sequence[float], between: str = " ") -> None:
    """Name the axis after the headline metric; where perplexities are far apart it is logarithmic."""
    lower = aggregate.metric in LOWER_IS_BETTER
    log = lower and values and max(values) > _WIDE * min(values)
    if log:
        logarithmic(axis)
    better = f"{'lower' if lower else 'higher'} is better{', log scale' if log else ''}"
    axis.set_label_text(f"{metric_title(aggregate)}{between}({better})")


# ------------------------------------------------------------------------------------------------------------- results


def _results(aggregate: Aggregate) -> Plot:
    metric, rows = aggregate.metric, aggregate.rows
    everything = [value for row in rows for value in row.values(metric).values()]
    models = list(dict.fromkeys(row.model for row in rows))
    low, high = fences(everything)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, row in enumerate(rows):
            style, values = look(models.index(row.model)), list(row.values(metric).values())
            if not values:
                _note(axes, index, "no seed finished")
                continue
            if not low <= (mean := float(np.mean(values))) <= high:
                off = number(mean, aggregate.digits)
                _note(axes, index, f"{off} →" if mean > high else f"← {off}", right=mean > high)
                continue
            above, below, colour = index - 0.13, index + 0.17, style["color"]
            if len(values) >= ENOUGH_SEEDS and (bounds := mean_interval(values)):
                axes.plot(bounds, [above, above], color=colour, linewidth=1.2, marker="|", markersize=6)
            bar = {"marker": "|", "markersize": 10, "markeredgewidth": 2.4}
            axes.plot([mean], [above], linestyle="none", color=colour, **bar)
            dots = {"marker": style["marker"], "markerfacecolor": "none", "markeredgecolor": colour}
            axes.plot(values, [below] * len(values), linestyle="none", **dots)
        if aggregate.baseline and (mean := aggregate.baseline.summary(metric).mean) is not None:
            axes.axvline(mean, color="#000000", linestyle=BASELINE_DASH, linewidth=0.8, zorder=0.9)
        axes.margins(x=0.06)
        _score_axis(axes.xaxis, aggregate, (low, high))
        axes.set_yticks(range(len(rows)), [_with_lost(row) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)

    line = "; the dashed line is the mean of softmax" if aggregate.baseline else ""
    if (low, high) != (min(everything), max(everything)):
        line += "; an arrow: far off, where the number says"
    what = (
        f"{metric_title(aggregate)}: every seed (open marks), the mean (bar), and from {ENOUGH_SEEDS} seeds on the "
        f"95 % t interval of the mean{line}. Models share their seeds, so differences between them are known better "
        "than these intervals suggest: the table has them."
    )
    return Plot("results", _caption(aggregate, what, rows), 0.9 + 0.34 * len(rows), paint)


def _note(axes: Axes, index: int, text: str, *, right: bool = False) -> None:
    """Words in the place of a row's marks, at the left end of the axes or at the right one."""
    axes.annotate(
        text,
        (0.98 if right else 0.02, index),
        xycoords=("axes fraction", "data"),
        ha="right" if right else "left",
        va="center",
        style="italic",
        color="#555555",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )


def _with_lost(row: Row) -> str:
    return f"{row.label}\n({len(row.lost)} of {len(row.records)} lost)" if row.lost else row.label


# ----------------------------------------------------------------------------------------------------- learning curves


def _learning_curves(aggregate: Aggregate, curves: list[tuple[Row, Curve]]) -> Plot:
    quantity = curves[0][1].quantity
    curves = [(row, curve) for row, curve in curves if curve.quantity == quantity]
    shown = selected(aggregate, curves)
    last = max(int(curve.updates[-1]) for _, curve in shown)
    ends = [float(curve.values.mean(axis=0)[-1]) for _, curve in shown]
    highest = fences(ends)[1]
    halves = [0.0, last / 2] if all(len(curve.updates) >= _FEW_POINTS for _, curve in shown) else [0.0]

    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, len(halves), squeeze=False)[0]
        for axes, start in zip(panels, halves, strict=True):
            for row, curve in shown:
                part = curve.after(start)
                band(axes, part.updates, part.values, look_of(aggregate, row), row.label)
            axes.set_xlabel("Updates")
        log = " (log scale)" if quantity == "token_perplexity" else ""
        if log:
            logarithmic(panels[0].yaxis)
        panels[0].set_ylabel(title(quantity, aggregate.task) + (log if len(halves) == 1 else ""))
        if len(halves) > 1:
            panels[0].set_title(f"Whole training{log}")
            panels[1].set_title("Second half (linear scale)")
            near = [curve for (_, curve), end in zip(shown, ends, strict=True) if end <= highest]
            inside = np.concatenate([curve.after(last / 2).values.ravel() for curve in near])
            panels[1].set_ylim(float(inside.min()), float(inside.max()))
        legend_below(figure)

    what = f"{title(quantity, aggregate.task)} during training: mean (line) and range (band) over seeds."
    return Plot("learning-curves", _caption(aggregate, what, [row for row, _ in shown], len(curves)), 3.6, paint)


# --------------------------------------------------------------------------------------------------------------- sweep


def _sweep(aggregate: Aggregate, sweep: Sweep) -> Plot:
    rows = sweep.rows
    one_seed = all(len(row.finished) < 2 for row in rows)
    panels: dict[str, Callable[[Row], float]] = {symbol("lambda_neg"): lambda row: row.options["lambda_neg"]}
    if by_sum := len(sweep.lines) > 1 and all(rows_sum(row) is not None for row in rows):
        panels[r"Sum of a row of weights, $1 + \lambda_+ - \lambda_-$"] = rows_sum
    everything = [value for row in rows for value in row.values(aggregate.metric).values()]

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for index, (axes, (words, place)) in enumerate(zip(grid, panels.items(), strict=True)):
            _sweep_panel(axes, aggregate, sweep, place, bars=not one_seed, joined=index == 0)
            axes.set_xlabel(words)
        _score_axis(grid[0].yaxis, aggregate, everything, between="\n")
        legend_below(figure)

    right = ", and against what the rows of weights sum to" if by_sum else ""
    around = ""
    if (baseline := aggregate.baseline) and baseline.finished:
        spread = ", its band one standard deviation over seeds" if len(baseline.finished) > 1 else ""
        around = f" The dashed line is softmax{spread}."
    crosses = "" if all(row.finished for row in rows) else " A cross at the top: no seed finished."
    what = (
        f"{metric_title(aggregate)} against lambda-{right}: "
        f"{'one seed a point' if one_seed else 'mean over seeds, bars of one standard deviation'}.{around}{crosses}"
    )
    drawn = [*([baseline] if around else []), *rows]
    return Plot(f"sweep-{safe_name(sweep.model)}", _caption(aggregate, what, drawn), 3.4, paint)


def _sweep_panel(
    axes: Axes, aggregate: Aggregate, sweep: Sweep, place: Callable[[Row], float], *, bars: bool, joined: bool
) -> None:
    metric, baseline = aggregate.metric, aggregate.baseline
    if baseline and (summary := baseline.summary(metric)).mean is not None:
        low, high = summary.mean - (summary.sd or 0.0), summary.mean + (summary.sd or 0.0)
        axes.axhspan(low, high, color="#000000", alpha=0.12, linewidth=0)
        axes.axhline(summary.mean, color="#000000", linewidth=1, linestyle=BASELINE_DASH, label=baseline.label)
    for index, (lambda_pos, line) in enumerate(sweep.lines.items(), start=1):
        measured = [(place(row), row.summary(metric)) for row in line if row.finished]
        style = look(index) if joined else {**look(index), "linestyle": "none"}
        axes.errorbar(
            [x for x, _ in measured],
            [summary.mean for _, summary in measured],
            yerr=[summary.sd or 0.0 for _, summary in measured] if bars else None,
            label=f"{symbol('lambda_pos')} = {lambda_pos:g}",
            capsize=2.5,
            elinewidth=0.9,
            **style,
        )
        for x in [place(row) for row in line if not row.finished]:
            top = axes.get_xaxis_transform()
            axes.plot([x], [0.97], transform=top, marker="x", color=style["color"], clip_on=False)
