"""The figures of an experiment, made from records and histories and nothing else: learning curves, sweeps."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import plural
from gpam_suite.records.metrics import LOWER_IS_BETTER
from gpam_suite.report.model_looks import look_of, selected
from gpam_suite.report.plotting import BASELINE_DASH, Plot, band, legend_below, logarithmic, look, symbol
from gpam_suite.report.provenance import caption
from gpam_suite.report.tables import metric_title
from gpam_suite.stats.aggregate import LAMBDA_LABELS, changed_options
from gpam_suite.stats.curves import Curve, learning_curve, title
from gpam_suite.stats.rows import Aggregate, Row

_WIDE = 4.0  # from this ratio of largest to smallest on, perplexities are drawn on a logarithmic axis
_FEWEST = 3  # points of a sweep's line
Lines = Mapping[float, Sequence[Row]]
"""Rows of one model that differ in their lambdas alone: lambda+ to them, by lambda-."""


def plots(aggregate: Aggregate) -> list[Plot]:
    """The figures an experiment has material for: learning curves, option sweeps."""
    curves = [(row, curve) for row in aggregate.rows if (curve := learning_curve(row))]
    found = [_learning_curves(aggregate, curves)] if curves else []
    return found + [_sweep(aggregate, model, lines) for model, lines in find_sweeps(aggregate.rows).items()]


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


def find_sweeps(rows: Sequence[Row]) -> dict[str, Lines]:
    """By model, of each that was run with three or more values of lambda- beside one of lambda+."""
    found: dict[str, dict[float, list[Row]]] = {}
    varied = filter(_varies_lambdas_alone, rows)
    for row in sorted(varied, key=lambda row: [row.options[name] for name in LAMBDA_LABELS]):
        found.setdefault(row.model, {}).setdefault(row.options["lambda_pos"], []).append(row)
    return {model: lines for model, lines in found.items() if max(map(len, lines.values())) >= _FEWEST}


def _varies_lambdas_alone(row: Row) -> bool:
    fixed = LAMBDA_LABELS.keys() <= row.options.keys() and row.options.get("lambdas", "fixed") == "fixed"
    return fixed and all(one.partition("=")[0] in LAMBDA_LABELS for one in changed_options(row.overrides_label))


def rows_sum(row: Row) -> float | None:
    """What each row of daGPAM's weights sums to, ``1 + lambda+ - lambda-``; None for other models, learned lambdas and
    the other reading of the formula."""
    pos, neg = (row.options.get(name) for name in LAMBDA_LABELS)
    plain = {"combination": "one_plus", "lambdas": "fixed"}
    other = any(row.options.get(name, value) != value for name, value in plain.items())
    return None if pos is None or neg is None or other else 1 + pos - neg


def _sweep(aggregate: Aggregate, model: str, lines: Lines) -> Plot:
    metric, baseline, rows = aggregate.metric, aggregate.baseline, [row for line in lines.values() for row in line]
    places: dict[str, Callable[[Row], float]] = {symbol("lambda_neg"): lambda row: row.options["lambda_neg"]}
    if len(lines) > 1 and all(rows_sum(row) is not None for row in rows):
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
            for index, (lambda_pos, line) in enumerate(lines.items(), start=1):
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
    return Plot(f"sweep-{safe_name(model)}", _caption(aggregate, what, drawn), 3.4, paint)
