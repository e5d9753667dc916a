"""The part of ``results/README.md`` that looks inside the models, and its figures."""

from collections.abc import Sequence
from pathlib import Path

from gpam_suite.report.panels import initialisation, runs, scatter, theory
from gpam_suite.report.plotting import Plot, render_all
from gpam_suite.stats.aggregate import Aggregate

GENERAL = "analysis"
"""What figures of no single experiment are named after."""
_TITLE = "Inside the models"


def _groups(results: Path, aggregates: Sequence[Aggregate]) -> dict[str, list[Plot]]:
    general = theory.plots(results) + initialisation.plots(results) + scatter.plots(results, aggregates)
    groups = {GENERAL: general} | {found.experiment: runs.plots(results, found) for found in aggregates}
    return {name: plots for name, plots in groups.items() if plots}


def render_inside(results: Path, chosen: Sequence[Aggregate], everything: Sequence[Aggregate]) -> dict[Path, bytes]:
    """The figures of the ``chosen`` experiments and of no single one as SVG: path to content, nothing written yet."""
    names = {GENERAL, *(found.experiment for found in chosen)}
    files: dict[Path, bytes] = {}
    for name, plots in _groups(results, everything).items():
        if name in names:
            files |= render_all(results, name, plots)
    return files


def inside(results: Path, aggregates: Sequence[Aggregate]) -> list[str]:
    """Paragraphs of the report; none where nothing was looked at."""
    groups = _groups(results, aggregates)
    if not groups:
        return []
    parts = [
        f"## {_TITLE}\n",
        "Made by `make analyse` from `analysis/` and the runs' histories; the definitions are in "
        "`src/gpam/analysis`. Gradient histories and analyses are there for runs made since they exist.\n",
    ]
    for name, plots in groups.items():
        parts.append(f"### {_TITLE}: {'without a run' if name == GENERAL else name}\n")
        parts += [plot.markdown(name) for plot in plots]
    return parts
