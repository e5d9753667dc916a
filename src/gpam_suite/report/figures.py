"""The figures of an experiment, made from records and histories and nothing else: learning curves, sweeps."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import plural
from gpam_suite.records.metrics import LOWER_IS_BETTER
from gpam_suite.report.model_looks import look_of, selected
from gpam_suite.report.plotting import BASELINE_DASH, Plot, band, legend_below, logarithmic, look
from gpam_suite.report.provenance import caption
from gpam_suite.report.sweep import Sweep, find_sweeps, rows_sum, symbol
from gpam_suite.report.tables import metric_title
from gpam_suite.stats.curves import Curve, learning_curve, title
from gpam_suite.stats.rows import Aggregate, Row

_WIDE = 4.0  # from this ratio of largest to smallest on, perplexities are drawn on a logarithmic axis


def plots(aggregate: Aggregate) -> list[Plot]:
    """The figures an experiment has material for: learning curves, option sweeps."""
    curves = [(row, curve) for row in aggregate.rows if (curve := learning_curve(row))]
    found = [_learning_curves(aggregate, curves)] if curves else []
    return found + [_sweep(aggregate, sweep) for sweep in find_sweeps(aggregate.rows)]


def _caption(aggregate: Aggregate, what: str, rows: Sequence[Row], among: int = 0) -> str:
    lost = sum(len(row.lost) for row in rows)
    what += f" Not drawn: {plural(lost, 'seed')} that failed or diverged." if lost else ""
    return caption(aggregate, what, [(row, row.seeds) for row in rows], among=among)


def _learning_curves(aggregate: Aggregate, curves: list[tuple[Row, Curve]]) -> Plot:
    shown = selected(aggregate, curves)
    what = f"{title(aggregate.task)} during training: mean (line) and range (band) over seeds."
    said = _caption(aggregate, what, [row for row, _ in shown], len(curves))

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for row, curve in shown:
            band(axes, curve.updates, curve.values, look_of(aggregate, row), row.label)
        logarithmic(axes.yaxis)
        axes.set_title(aggregate.reference["dataset_label"])
        axes.set_xlabel("Updates")
        axes.set_ylabel(f"{title(aggregate.task)} (log scale)")
        legend_below(figure)

    return Plot("learning-curves", said, 3.2, paint)


def _sweep(aggregate: Aggregate, sweep: Sweep) -> Plot:
    metric, baseline, rows = aggregate.metric, aggregate.baseline, sweep.rows
    places: dict[str, Callable[[Row], float]] = {symbol("lambda_neg"): lambda row: row.options["lambda_neg"]}
    if len(sweep.lines) > 1 and all(rows_sum(row) is not None for row in rows):
        places[r"Sum of a row of weights, $1 + \lambda_+ - \lambda_-$"] = rows_sum
    scores = [value for row in rows for value in row.values(metric).values()]
    lower = metric in LOWER_IS_BETTER
    softmax = baseline.summary(metric) if baseline and baseline.finished else None

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(places), sharey=True, squeeze=False)[0]
        for axes, (words, place) in zip(grid, places.items(), strict=True):
            if softmax:
                spread = softmax.sd or 0.0
                axes.axhspan(softmax.mean - spread, softmax.mean + spread, color="#000000", alpha=0.12, linewidth=0)
                axes.axhline(softmax.mean, color="#000000", linewidth=1, linestyle=BASELINE_DASH, label=baseline.label)
            for index, (lambda_pos, line) in enumerate(sweep.lines.items(), start=1):
                finished = [row for row in line if row.finished]
                found = [row.summary(metric) for row in finished]
                axes.errorbar(
                    [place(row) for row in finished],
                    [summary.mean for summary in found],
                    yerr=[summary.sd or 0.0 for summary in found],
                    label=f"{symbol('lambda_pos')} = {lambda_pos:g}",
                    elinewidth=0.9,
                    **look(index),
                )
            axes.set_xlabel(words)
        if lower and scores and max(scores) > _WIDE * min(scores):
            logarithmic(grid[0].yaxis)
        grid[0].set_ylabel(f"{metric_title(aggregate)}\n({'lower' if lower else 'higher'} is better)")
        legend_below(figure)

    what = (
        f"{metric_title(aggregate)} against lambda-{', and the sum of a row of weights' if len(places) > 1 else ''}: "
        "mean over seeds, bars of one standard deviation."
        f"{' Dashed: softmax, its band one standard deviation.' if softmax else ''}"
    )
    drawn = [*([baseline] if baseline else []), *rows]
    return Plot(f"sweep-{safe_name(sweep.model)}", _caption(aggregate, what, drawn), 3.4, paint)
