"""Does less rank collapse go with a better score? Every analysed run of every experiment, a dot each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import ticker
from matplotlib.figure import Figure

from gpam_suite.common import formatting
from gpam_suite.common.formatting import listed
from gpam_suite.inside.store import read_runs
from gpam_suite.inside.words import COMMAND, TITLES
from gpam_suite.report.plotting import Plot, fences, legend_below, look, with_margin
from gpam_suite.report.tables import metric_title
from gpam_suite.stats.aggregate import Aggregate
from gpam_suite.stats.correlation import RankCorrelation, rank_correlation

MEASURES = ("residual", "cosine")
_GROUPS = {"softmax": "softmax and its controls", "dagpam": "daGPAM with any options", "": "all others"}  # by prefix
_ACROSS = 3


class Point(NamedTuple):
    """A run: its model, its score and its tokens' measures behind the last layer."""

    model: str
    seed: int
    score: float
    collapse: dict[str, float]


def points(analyses: Mapping[Path, Any], aggregate: Aggregate) -> dict[str, list[Point]]:
    """Stack to every run of the ``analyses`` with a score and its tokens behind the stack's last layer."""
    found: dict[str, list[Point]] = {}
    for row in aggregate.rows:
        for record in row.finished:
            streams = analyses[record.folder]["streams"] if record.folder in analyses else {}
            for stack, own in streams.items():
                last = {name: own[name][-1] for name in MEASURES}
                if record.headline is not None and None not in last.values():
                    found.setdefault(stack, []).append(Point(row.model, record["seed"], record.headline, last))
    return found


def correlations(found: Sequence[Point]) -> dict[str, RankCorrelation | None]:
    """Measure to its rank correlation with the score."""
    scores = [point.score for point in found]
    return {name: rank_correlation([point.collapse[name] for point in found], scores) for name in MEASURES}


def plots(results: Path, aggregates: Sequence[Aggregate]) -> list[Plot]:
    """One figure over all experiments, a panel for each stack with two analysed runs or more; none without any."""
    panels = [
        (aggregate, stack, own)
        for aggregate in aggregates
        for stack, own in points(read_runs(results, aggregate.records), aggregate).items()
        if len(own) > 1
    ]
    if not panels:
        return []
    lines = -(-len(panels) // _ACROSS)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(lines, _ACROSS, squeeze=False)
        for axes, (aggregate, stack, own) in zip(grid.flat, panels, strict=False):
            for index, (prefix, label) in enumerate(_GROUPS.items()):
                chosen = [point for point in own if _prefix(point) == prefix]
                axes.plot(
                    [point.collapse["residual"] for point in chosen],
                    [point.score for point in chosen],
                    **{**look(index), "linestyle": "none", "markerfacecolor": "none", "label": label},
                )
            axes.set_ylim(*with_margin(fences([point.score for point in own])))
            axes.set_title(f"{aggregate.experiment}, {stack}\n{reading(correlations(own)['residual'])}", fontsize=6.5)
            axes.set_xlabel(TITLES["residual"], fontsize=7)
            axes.set_ylabel(metric_title(aggregate), fontsize=7)
            axes.tick_params(labelsize=7)
            axes.xaxis.set_major_locator(ticker.MaxNLocator(3))
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        legend_below(figure)

    caption = (
        "Does less rank collapse go with a better score? Each mark is a run: score against how different tokens still "
        "are behind the last layer of the stack; above each panel Spearman's rank correlation with its 95 % interval "
        "(Bonett and Wright). Runs of one model differ in their seed alone, so they are not independent draws of "
        "models; scores far off are in the correlation, but not drawn. Data: "
        f"{listed(aggregate.reference['dataset_label'] for aggregate, _, _ in panels)}, test sets. Models: all of the "
        f"tables. Seeds: {listed(sorted({point.seed for _, _, own in panels for point in own}))}. Made by "
        f"`{COMMAND} parts=[runs]`."
    )
    return [Plot("scatter", caption, 0.6 + 1.9 * lines, paint)]


def _prefix(point: Point) -> str:
    return next(prefix for prefix in _GROUPS if point.model.startswith(prefix))


def reading(found: RankCorrelation | None) -> str:
    """The rank correlation in a line."""
    if found is None:
        return "too few runs for a correlation"
    return rf"$\rho$ = {formatting.number(found.rho)} {formatting.interval(found.low, found.high)}, {found.count} runs"
