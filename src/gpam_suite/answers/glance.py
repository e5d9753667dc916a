"""The experiments at a glance: what each model gains over softmax in percent of its score, so that perplexity and BLEU
share a figure. Above zero is better."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from gpam_suite import formatting
from gpam_suite.aggregate import BASELINE, FIXED, TRAINABLE, Aggregate, Row
from gpam_suite.answers.answer import BETTER, WORSE
from gpam_suite.answers.plan import PLANNED, models, of_one_sum
from gpam_suite.answers.runs import Runs, compared, turned_interval
from gpam_suite.formatting import listed
from gpam_suite.metrics import turned
from gpam_suite.paper import PAPER_BLEU
from gpam_suite.plotting import BASELINE_DASH, Plot, fences, legend_below, look, render_all, with_margin
from gpam_suite.statistics import summarise

NAME = "overview"
"""What the figures are named after."""
_KINDS = ("main", "controls", "ablations", "alternatives")
_DIGITS = 1
_NARROW = 15  # letters that fit above a column
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


def _scope(aggregates: Sequence[Aggregate]) -> str:
    seeds = sorted({seed for found in aggregates for row in found.rows for seed in row.seeds})
    return (
        f"Experiments of the plan come first. Seeds: {listed(seeds)}. Made by `python scripts/tabulate.py` from the "
        "records."
    )


def _is_shown(runs: Runs, experiment: str, model: str) -> bool:
    return compared(runs, experiment, model).verdict in (BETTER, WORSE)


# -------------------------------------------------------------------------------------------------------------- daGPAM


def _dagpam(runs: Runs) -> Plot | None:
    """A forest plot: experiments below each other, in each daGPAM's kinds and what they are to be seen beside."""
    scaled, same_sum = of_one_sum()
    kinds = {FIXED: -0.18, TRAINABLE: 0.18, same_sum: -0.18, scaled: 0.18}  # how far below the experiment's line
    sides = {
        found.experiment: {
            model: own
            for model in kinds
            if runs.complete(found.experiment, model, BASELINE)
            and (own := gain(found, runs.row(found.experiment, model)))
        }
        for found in runs.aggregates
    }
    drawn = [found for found in runs.aggregates if sides[found.experiment]]
    if not drawn:
        return None
    ends = [end for found in drawn for own in sides[found.experiment].values() for end in own if end is not None]
    low, high = with_margin(fences([*ends, 0.0]))
    labels = {model: runs.row(found.experiment, model).label for found in drawn for model in sides[found.experiment]}
    looks = {model: {**look(index), "linestyle": "none"} for index, model in enumerate(kinds, start=1)}

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        for model, label in labels.items():
            axes.plot([], [], **looks[model], label=label)
        for index, found in enumerate(drawn):
            for model, own in sides[found.experiment].items():
                place, style = index + kinds[model], looks[model]
                face = style["color"] if _is_shown(runs, found.experiment, model) else "white"
                axes.plot([own.estimate], [place], **style, markerfacecolor=face, zorder=3)
                known = [end for end in own if end is not None]
                axes.plot([min(known), max(known)], [place, place], color=style["color"], linewidth=1.3, zorder=2)
                for end, beyond, arrow in ((low, min(known) < low, "<"), (high, max(known) > high, ">")):
                    if beyond:
                        axes.plot([end], [place], color=style["color"], marker=arrow, clip_on=False, zorder=4)
                at = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7, "color": style["color"]}
                axes.annotate(formatting.estimate(*own, _DIGITS), (1.02, place), **at)
        axes.axvline(0, color="#000000", linestyle=BASELINE_DASH, linewidth=0.8, zorder=1)
        axes.set_xlim(low, high)
        axes.set_yticks(range(len(drawn)), [_label(found) for found in drawn], fontsize=7)
        axes.set_ylim(len(drawn) - 0.5, -0.5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel("Better than softmax by, in percent of its score")
        legend_below(figure)

    bleu = [found.baseline.summary(found.metric).mean for found in drawn if found.quantity == "BLEU"]
    claim = [formatting.number(100 * PAPER_BLEU / mean, _DIGITS) for mean in sorted(bleu, reverse=True)]
    paper = f" The paper's {PAPER_BLEU} BLEU would be {claim[0]} to {claim[-1]} percent here." if claim else ""
    alone = f" {labels[scaled].capitalize()} has no negative weights." if scaled in labels else ""
    arrows = " Arrows: it goes on." if min(ends) < low or max(ends) > high else ""
    caption = (
        "What daGPAM gains over softmax on each test set, in percent of softmax's score (lower perplexity, higher "
        "BLEU and accuracy: to the right is better): mean over seeds, and its 95 % interval (paired t). Filled marks: "
        "a difference that is shown, after Holm's correction within an experiment that has several; hollow: none is "
        f"shown; no mark: not run with three seeds.{arrows}{alone}{paper} {_scope(drawn)}"
    )
    return Plot("dagpam", caption, 0.9 + 0.42 * len(drawn), paint)


# ---------------------------------------------------------------------------------------------------------- all models


def _everyone(runs: Runs) -> Plot | None:
    """A table of colours: a row a model, a column an experiment that has a rival's score."""
    names = [name for kind in _KINDS for name in models(kind) if name != BASELINE]
    columns = {
        found.experiment: {
            name: own.estimate
            for name in names
            if (row := runs.row(found.experiment, name)) and (own := gain(found, row))
        }
        for found in runs.aggregates
    }
    drawn = [found for found in runs.aggregates if columns[found.experiment].keys() & models("alternatives")]
    if not drawn:
        return None
    names = [name for name in names if any(name in columns[found.experiment] for found in drawn)]
    labels = [next(row.label for found in drawn if (row := runs.row(found.experiment, name))) for name in names]
    limits = {
        task: max(abs(end) for end in fences([*_values(columns, drawn, task), 0.0])) or 1.0
        for task in {found.task for found in drawn}
    }
    ends = np.cumsum([sum(name in models(kind) for name in names) for kind in _KINDS])[:-1]
    planned = sum(found.experiment in PLANNED for found in drawn)

    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        shade = np.full((len(names), len(drawn)), np.nan)
        for place in np.ndindex(shade.shape):
            name, found = names[place[0]], drawn[place[1]]
            value, words, weight = columns[found.experiment].get(name), formatting.MISSING, "normal"
            if value is not None:
                shade[place] = np.clip(value / limits[found.task], -1, 1)
                several = len(runs.row(found.experiment, name).finished) > 1
                star = "*" if several and _is_shown(runs, found.experiment, name) else ""
                words, weight = f"{formatting.signed(value, _DIGITS)}{star}", "bold" if several else "normal"
            at = {"ha": "center", "va": "center", "fontsize": 7, "weight": weight}
            colour = "white" if abs(shade[place]) > _DARK else "black"
            axes.annotate(words, (place[1] + 0.5, place[0] + 0.5), color=colour, **at)
        axes.pcolormesh(np.ma.masked_invalid(shade), cmap="PuOr", vmin=-1.3, vmax=1.3)
        for end in ends:
            axes.axhline(end, color="white", linewidth=3)
        axes.axvline(planned, color="white", linewidth=3)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.set_yticks(np.arange(len(names)) + 0.5, labels, fontsize=7.5)
        axes.set_ylim(len(names), 0)
        axes.set_xticks(np.arange(len(drawn)) + 0.5, [_head(found) for found in drawn], fontsize=6)
        axes.xaxis.tick_top()

    caption = (
        "What every model gains over softmax on each test set, in percent of softmax's score (lower perplexity, higher "
        "BLEU: above zero is better). Bold: a mean over several seeds, with * where a difference is shown; the others "
        "have one seed, set against softmax's same seed. What chance alone does to those is at the head of each "
        "column: the standard deviation of such a gain over seeds, pooled over the bold models (few, so up to three "
        "times as much may be chance, and other models may stray further). Violet is better, orange worse, on one "
        "scale for each task, whose ends stand for all beyond. From top to bottom: daGPAM, softmax with more heads or "
        "daGPAM's parameters or FLOPs, daGPAM "
        "without a part, and other mechanisms; from left to right: "
        f"{listed(found.experiment for found in drawn)}. {_scope(drawn)}"
    )
    return Plot("models", caption, 0.8 + 0.21 * len(names), paint)


def _values(columns: dict[str, dict[str, float]], drawn: Sequence[Aggregate], task: str) -> list[float]:
    return [value for found in drawn if found.task == task for value in columns[found.experiment].values()]


def _several(aggregate: Aggregate) -> list[dict[int, float]]:
    """The scores by seed of each row that is set against softmax with several."""
    return [own for row in aggregate.compared if len(own := row.values(aggregate.metric)) > 1]


def _head(aggregate: Aggregate) -> str:
    """What is measured on what, and how far gains of one seed stray, in percent too."""
    base = aggregate.baseline.values(aggregate.metric)
    gains = [[value - base[seed] for seed, value in own.items() if seed in base] for own in _several(aggregate)]
    spreads = [own.sd for found in gains if (own := summarise(found)).sd is not None]
    mean = summarise(list(base.values())).mean
    spread = 100 * float(np.sqrt(np.mean(np.square(spreads)))) / mean if spreads else None
    words = (
        aggregate.reference["dataset_label"],
        aggregate.quantity,
        f"chance ± {formatting.number(spread, _DIGITS)} %",
        *(() if aggregate.experiment in PLANNED else ("not in the plan",)),
    )
    return "\n".join(line for part in words for line in textwrap.wrap(part, _NARROW))
