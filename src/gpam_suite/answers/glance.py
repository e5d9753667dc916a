"""The experiments at a glance: what each model gains over softmax in percent of its score, so that perplexity and BLEU
share a figure. Above zero is better."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from gpam_suite import formatting
from gpam_suite.aggregate import BASELINE, FIXED, TRAINABLE, Aggregate, Row
from gpam_suite.answers.answer import UNDECIDED
from gpam_suite.answers.plan import LAMBDAS, PLANNED, models
from gpam_suite.answers.runs import Runs, compared, turned_interval
from gpam_suite.formatting import listed
from gpam_suite.metrics import turned
from gpam_suite.plotting import BASELINE_DASH, Plot, fences, legend_below, look, note, render_all, with_margin

NAME = "overview"
"""What the figures are named after."""
_KINDS = ("main", "controls", "ablations", "alternatives")
_DIGITS = 1
_DARK = 0.7  # from this share of a colour scale on, black letters cannot be read


class Gain(NamedTuple):
    """In percent of softmax's mean score, with the bounds of its 95 % interval over seeds where there is one."""

    estimate: float
    low: float | None
    high: float | None


def gain(aggregate: Aggregate, row: Row) -> Gain | None:
    """Of ``row`` over softmax; None where one of them has no score, or softmax's is zero."""
    found = aggregate.difference(row)
    if found is None or not (mean := aggregate.baseline.summary(aggregate.metric).mean):
        return None
    bounds = turned_interval(aggregate.metric, found.low, found.high)
    share = [None if value is None else 100 * value / mean for value in bounds]
    return Gain(100 * turned(aggregate.metric, found.estimate) / mean, *share)


def plots(results: Path, aggregates: Sequence[Aggregate]) -> list[Plot]:
    """daGPAM in every experiment with three seeds a side, and every model in the experiments that have rivals; none
    where nothing of the plan was run."""
    if not any(found.experiment in PLANNED for found in aggregates):
        return []
    order = {name: place for place, name in enumerate(PLANNED)}
    ordered = sorted(aggregates, key=lambda found: order.get(found.experiment, len(order)))
    runs = Runs(results, ordered)
    return [plot for plot in (_dagpam(runs), _everyone(runs)) if plot]


def render_glance(results: Path, aggregates: Sequence[Aggregate]) -> dict[Path, bytes]:
    """The figures as SVG and PNG: path to content, nothing written yet."""
    return render_all(results, NAME, plots(results, aggregates))


def glance(results: Path, aggregates: Sequence[Aggregate], folder: str = "") -> list[str]:
    """A paragraph for each figure, for a page from which ``folder`` leads to the results."""
    return [plot.markdown(NAME, folder) for plot in plots(results, aggregates)]


def _label(aggregate: Aggregate) -> str:
    planned = "" if aggregate.experiment in PLANNED else " (not in the plan)"
    return f"{aggregate.reference['dataset_label']}, {aggregate.quantity}\n{aggregate.experiment}{planned}"


def _head(aggregate: Aggregate) -> str:
    """A narrow label, with the standard deviation of softmax's seeds."""
    summary = aggregate.baseline.summary(aggregate.metric)
    spread = formatting.number(100 * summary.sd / summary.mean if summary.sd and summary.mean else None, _DIGITS)
    return f"{aggregate.reference['dataset_label']}\n{aggregate.quantity}\nsoftmax ± {spread} %"


def _scope(aggregates: Sequence[Aggregate]) -> str:
    seeds = sorted({seed for found in aggregates for row in found.rows for seed in row.seeds})
    return (
        f"Experiments of the plan come first. Seeds: {listed(seeds)}. Made by `python scripts/tabulate.py` from the "
        "records."
    )


def _dagpam(runs: Runs) -> Plot | None:
    """A forest plot: experiments below each other, fixed and trainable lambdas in each."""
    sides = {
        found.experiment: {
            model: own
            for model in (FIXED, TRAINABLE)
            if runs.complete(found.experiment, model, BASELINE)
            and (own := gain(found, runs.row(found.experiment, model)))
        }
        for found in runs.aggregates
        if found.experiment not in LAMBDAS
    }
    shown = [found for found in runs.aggregates if sides.get(found.experiment)]
    if not shown:
        return None
    every = [own for found in shown for own in sides[found.experiment].values()]
    ends = [end for own in every for end in own if end is not None]
    low, high = fences([*ends, 0.0])
    labels = {model: runs.row(found.experiment, model).label for found in shown for model in sides[found.experiment]}

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for index, found in enumerate(shown):
            for model, own in sides[found.experiment].items():
                place, style = index + (0.18 if model == TRAINABLE else -0.18), look(1 + (model == TRAINABLE))
                clear = compared(runs, found.experiment, model).verdict != UNDECIDED
                face = {"markerfacecolor": style["color"] if clear else "white", "label": labels[model]}
                if low <= own.estimate <= high:
                    axes.plot([own.estimate], [place], **{**style, **face, "linestyle": "none", "zorder": 3})
                else:
                    note(axes, place, "→" if own.estimate > high else "←", right=own.estimate > high)
                if own.low is not None and own.high is not None:
                    axes.plot([own.low, own.high], [place, place], color=style["color"], linewidth=1.3, zorder=2)
                words = formatting.estimate(*own, _DIGITS)
                axes.annotate(
                    words,
                    (1.02, place),
                    xycoords=("axes fraction", "data"),
                    va="center",
                    fontsize=7,
                    color=style["color"],
                )
        axes.axvline(0, color="#000000", linestyle=BASELINE_DASH, linewidth=0.8, zorder=1)
        axes.set_xlim(*with_margin((low, high)))
        axes.set_yticks(range(len(shown)), [_label(found) for found in shown], fontsize=7)
        axes.set_ylim(len(shown) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("Better than softmax by, in percent of its score")
        legend_below(figure)

    caption = (
        "What daGPAM gains over softmax on each test set, in percent of softmax's score (lower perplexity, higher "
        "BLEU: to the right is better): mean over seeds, and its 95 % interval (paired t). A full mark is a difference "
        "that is shown, after Holm's correction where a table has several; an empty one is not; an arrow: far off. "
        f"{_scope(shown)}"
    )
    return Plot("dagpam", caption, 0.9 + 0.42 * len(shown), paint)


def _everyone(runs: Runs) -> Plot | None:
    """A table of colours: a row a model, a column an experiment."""
    rivals = models("alternatives")
    shown = [
        found
        for found in runs.aggregates
        if found.baseline and any(runs.row(found.experiment, name) for name in rivals)
    ]
    names = [name for kind in _KINDS for name in models(kind) if name != BASELINE]
    names = [name for name in names if any(runs.row(found.experiment, name) for found in shown)]
    if not shown:
        return None
    values = np.array([[_estimate(runs, found, name) for found in shown] for name in names], dtype=float)
    labels = [next(row.label for found in shown if (row := runs.row(found.experiment, name))) for name in names]
    groups = np.cumsum([sum(name in models(kind) for name in names) for kind in _KINDS])[:-1]

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        limits = [max(map(abs, fences(column[np.isfinite(column)].tolist()))) or 1.0 for column in values.T]
        shade = np.clip(values / limits, -1, 1)
        axes.pcolormesh(np.ma.masked_invalid(shade), cmap="PuOr", vmin=-1.3, vmax=1.3)
        for (row, column), value in np.ndenumerate(values):
            seeds = runs.row(shown[column].experiment, names[row])
            words = "–" if np.isnan(value) else formatting.signed(value, _DIGITS)
            weight = "bold" if seeds and len(seeds.finished) > 1 else "normal"
            colour = "white" if abs(shade[row, column]) > _DARK else "black"
            at = {"ha": "center", "va": "center", "fontsize": 7, "weight": weight, "color": colour}
            axes.annotate(words, (column + 0.5, row + 0.5), **at)
        for line in groups:
            axes.axhline(line, color="white", linewidth=3)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_yticks(np.arange(len(names)) + 0.5, labels, fontsize=7.5)
        axes.set_ylim(len(names), 0)
        axes.set_xticks(np.arange(len(shown)) + 0.5, [_head(found) for found in shown], fontsize=6)
        axes.xaxis.tick_top()

    caption = (
        "What every model gains over softmax on each test set, in percent of softmax's score (lower perplexity, higher "
        "BLEU: above zero is better). Bold: a mean over several seeds; the others have one, so set them against the "
        "standard deviation of softmax's seeds at the head of each column, in percent too. Colours: violet is better, "
        "orange worse, each column on a scale of its own. From top to bottom: daGPAM, softmax with its parameters, "
        f"FLOPs or more heads, daGPAM without a part, and other mechanisms. {_scope(shown)}"
    )
    return Plot("models", caption, 0.8 + 0.21 * len(names), paint)


def _estimate(runs: Runs, aggregate: Aggregate, name: str) -> float:
    row = runs.row(aggregate.experiment, name)
    found = gain(aggregate, row) if row else None
    return found.estimate if found else float("nan")
