"""Does less rank collapse go with a better score? Every analysed run of every experiment, a dot each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import ticker
from matplotlib.figure import Figure

from gpam_suite import formatting
from gpam_suite.aggregate import Aggregate
from gpam_suite.analysis.correlation import RankCorrelation, rank_correlation
from gpam_suite.analysis.store import read_runs
from gpam_suite.analysis.words import COMMAND, TITLES
from gpam_suite.formatting import listed
from gpam_suite.plotting import Plot, legend_below, look
from gpam_suite.tables import metric_title

MEASURES = ("residual", "cosine")


class Point(NamedTuple):
    """A run: its model, its score and its tokens' measures behind the last layer."""

    label: str
    seed: int
    score: float
    collapse: dict[str, float]


def points(results: Path, aggregate: Aggregate) -> list[Point]:
    """Every analysed run with a score; of the last layer of the stack that self-attention has to itself: the encoder of
    translation, else the decoder."""
    found = []
    for row in aggregate.rows:
        for record in row.finished:
            analysis = read_runs(results, [record]).get(record.folder)
            if analysis is None or record.headline is None:
                continue
            stack: dict[str, Any] = next(iter(analysis["streams"].values()))
            found.append(
                Point(row.label, record["seed"], record.headline, {name: stack[name][-1] for name in MEASURES})
            )
    return found


def correlations(found: Sequence[Point]) -> dict[str, RankCorrelation | None]:
    """Measure to its rank correlation with the score."""
    scores = [point.score for point in found]
    return {name: rank_correlation([point.collapse[name] for point in found], scores) for name in MEASURES}


def plots(results: Path, aggregates: Sequence[Aggregate]) -> list[Plot]:
    """One figure over all experiments with two analysed runs or more; none where there are none."""
    panels = [(aggregate, own) for aggregate in aggregates if len(own := points(results, aggregate)) > 1]
    if not panels:
        return []
    labels = list(dict.fromkeys(point.label for _, own in panels for point in own))

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(panels), len(MEASURES), squeeze=False)
        for line, (aggregate, own) in zip(grid, panels, strict=True):
            found = correlations(own)
            for axes, name in zip(line, MEASURES, strict=True):
                for index, label in enumerate(labels):
                    chosen = [point for point in own if point.label == label]
                    style = look(index)
                    axes.plot(
                        [point.collapse[name] for point in chosen],
                        [point.score for point in chosen],
                        linestyle="none",
                        marker=style["marker"],
                        markerfacecolor="none",
                        color=style["color"],
                        label=label,
                    )
                axes.set_title(reading(found[name]), fontsize=8)
                axes.set_xlabel(f"{TITLES[name]}, last layer", fontsize=8)
                axes.xaxis.set_major_locator(ticker.MaxNLocator(3))
            line[0].set_ylabel(f"{aggregate.experiment}\n{metric_title(aggregate)}", fontsize=7)
        legend_below(figure)

    caption = (
        "Does less rank collapse go with a better score? Each mark is a run: score against how different tokens "
        "still are behind the last layer (of the encoder in translation); above each panel Spearman's rank "
        "correlation with its 95 % interval (Bonett and Wright). Runs of one model differ in their seed alone, so "
        "they are not independent draws of models. Data: "
        f"{listed(aggregate.reference['dataset_label'] for aggregate, _ in panels)}, test sets. Models: "
        f"{listed(labels)}. Seeds: {listed(sorted({point.seed for _, own in panels for point in own}))}. Made by "
        f"`{COMMAND} parts=[runs]`."
    )
    return [Plot("scatter", caption, 0.6 + 0.085 * len(labels) + 1.9 * len(panels), paint)]


def reading(found: RankCorrelation | None) -> str:
    """The rank correlation in a line."""
    if found is None:
        return "too few runs for a correlation"
    return rf"$\rho$ = {formatting.number(found.rho)} {formatting.interval(found.low, found.high)}, {found.count} runs"
