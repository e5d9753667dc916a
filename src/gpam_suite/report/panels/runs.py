"""The figure of what happens inside somebody's own trained models: collapse by layer (the paper's figure 4), attention
weights, lemmas, gradients, learned lambdas; from records and ``analysis/runs/`` alone."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib import ticker
from matplotlib.figure import Figure

from gpam_suite.common.formatting import listed
from gpam_suite.records.folder import Record
from gpam_suite.records.store import read_runs
from gpam_suite.report.model_looks import look_of, selected
from gpam_suite.report.panels import ANALYSE
from gpam_suite.report.plotting import Plot, band, legend_below, logarithmic, some_panels, symbol
from gpam_suite.report.provenance import caption
from gpam_suite.stats.inside_claim import OF_TOKENS
from gpam_suite.stats.rows import Aggregate, Row

_WEIGHTS = {
    "negative_mass": "Share of negative weight",
    "entropy": "Entropy (nats)",
    "first": "Weight of first token",
}
_LEMMAS = {
    "tightness": "Lemma 1 or 4: bound / residual",
    "jacobian_pos": r"Lemma 3: Jacobian norm of $P_+$",
    "jacobian_neg": r"Lemma 3: Jacobian norm of $P_-$",
    "opposition_cosine": r"Lemma 5: cosine of $S_-$ and $S_+$",
}
_ACROSS = 3
_WHAT = (
    "Inside the trained models, by layer (0: the embeddings; the paper's figure 4) and by attention module, cross "
    "attention last: mean (line) and range (band) over seeds. Ranks and the relative residual fall, and cosine "
    "similarity rises, as tokens become alike. Weights are means over heads, gradient norms medians over training. "
    "`docs/analysis.md` says what is measured."
)
Analyses = Mapping[Path, Mapping[str, Any]]
"""Folder of a run to what ``make analyse`` found in it."""


class Panel(NamedTuple):
    """Numbers by layer or module: their title, what is counted, and from where."""

    title: str
    counted: str = "Module"
    first: int = 1
    log: bool = False


def inside_runs(results: Path, aggregate: Aggregate) -> Plot | None:
    """Of the models of somebody's own ``results``, a panel for each number that one of them has; None where nothing is
    known of any."""
    analyses = read_runs(results, aggregate.finished)
    rows = [(row, row.seeds) for row in aggregate.rows if any(_of_row(row, analyses))]
    if not rows:
        return None
    shown = selected(aggregate, rows)
    found = {row: _of_row(row, analyses) for row, _ in shown}
    panels = list(dict.fromkeys(panel for seeds in found.values() for own in seeds for panel in own))
    down = -(-len(panels) // _ACROSS)

    def paint(figure: Figure) -> None:
        grid = some_panels(figure, len(panels), down, _ACROSS)
        for axes, panel in zip(grid, panels, strict=True):
            for row, of_row in found.items():
                if seeds := [own[panel] for own in of_row if panel in own]:
                    layers = range(panel.first, panel.first + len(seeds[0]))
                    band(axes, layers, seeds, {**look_of(aggregate, row), "markersize": 3}, row.label)
            axes.set_title(panel.title, fontsize=7)
            axes.set_xlabel(panel.counted, fontsize=7)
            axes.tick_params(labelsize=7)
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
            if panel.log:
                logarithmic(axes.yaxis)
        legend_below(figure)

    absent = [f"{row.label}, seed {one['seed']}" for row in found for one in row.finished if one.folder not in analyses]
    left = f" Not looked into (gradients and lambdas alone): {listed(absent)}." if absent and analyses else ""
    said = caption(aggregate, _WHAT + left, shown, then=f"{ANALYSE} parts=[runs]", among=len(rows))
    return Plot("inside", said, 0.9 + 1.7 * down, paint)


def _of_row(row: Row, analyses: Analyses) -> list[dict[Panel, list[float]]]:
    return [_numbers(record, analyses.get(record.folder, {})) for record in row.finished]


def _numbers(record: Record, analysis: Mapping[str, Any]) -> dict[Panel, list[float]]:
    """What there is of a run, by its record and its analysis (empty, where it was not looked into); of a module in
    which there is none of it, NaN, which is not drawn."""
    found: dict[Panel, list[float | None]] = {}
    paths = in_order({path: path for path in record["attention_modules"]})

    def placed(values: Mapping[str, float | None]) -> list[float | None]:
        return [values.get(path, math.nan) for path in paths] if values else []

    for stack, measures in analysis.get("streams", {}).items():
        found |= {Panel(title, f"Layer, {stack}", first=0): measures.get(name) for name, title in OF_TOKENS.items()}
    modules, lemmas = analysis.get("modules", {}), analysis.get("lemmas", {})
    for name, title in _WEIGHTS.items():
        found[Panel(title)] = placed({path: mean_of(own[name]) for path, own in modules.items() if name in own})
    for name, title in _LEMMAS.items():
        checked = {path: own[name] for path, own in lemmas.items() if name in own}
        found[Panel(title, log=name == "tightness")] = placed(checked)
    gradients, learned = (record.at(name) or {} for name in ("gradient_norms", "learned_scalars"))
    for kind in ("query", "key", "value"):
        found[Panel(f"Gradient, {kind}", log=True)] = placed(by_module(gradients, kind))
    for kind in dict.fromkeys(name.partition("/")[0] for name in learned):
        found[Panel(symbol(kind))] = placed(by_module(learned, kind))
    if record["options"].get("combination", "one_plus") == "one_plus":
        positive, negative = (by_module(learned, kind) for kind in ("lambda_pos", "lambda_neg"))
        sums = {path: 1 + positive[path] - own for path, own in negative.items() if path in positive}
        found[Panel(r"Sum of a row, $1 + \lambda_+ - \lambda_-$")] = placed(sums)
    return {panel: numbers for panel, numbers in found.items() if numbers and None not in numbers}


def by_module(values: Mapping[str, float | None], kind: str) -> dict[str, float | None]:
    """Those named ``<kind>/<module>``, and the means of those named ``<kind>/<module>/<head>``, by module."""
    heads: dict[str, list[float | None]] = {}
    for name, value in values.items():
        own, _, rest = name.partition("/")
        if own == kind:
            heads.setdefault(rest.partition("/")[0], []).append(value)
    return {module: mean_of(own) for module, own in heads.items()}


def mean_of(heads: Sequence[float | None]) -> float | None:
    """None where one of them is."""
    return None if None in heads else fmean(heads)


def of_kind(values: Mapping[str, float | None], kind: str) -> list[float | None]:
    """:func:`by_module`, :func:`in_order`."""
    return in_order(by_module(values, kind))


def in_order(values: Mapping[str, Any]) -> list[Any]:
    """By the path of a module, cross attention last."""
    return [values[path] for path in sorted(values, key=lambda path: "encoder_attn" in path)]
