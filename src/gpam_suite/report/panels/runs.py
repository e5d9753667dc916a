"""The figure of what happens inside the trained models of an experiment: collapse by layer (the paper's figure 4),
attention weights, lemmas, gradients, learned lambdas; from records and ``analysis/runs/`` alone."""

from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib import ticker
from matplotlib.figure import Figure

from gpam_suite.inside.store import COMMAND, TITLES, read_runs
from gpam_suite.records.folder import Record
from gpam_suite.report.model_looks import look_of, selected
from gpam_suite.report.plotting import Plot, band, legend_below, logarithmic
from gpam_suite.report.provenance import caption
from gpam_suite.stats.aggregate import Aggregate
from gpam_suite.stats.sweep import symbol

_WEIGHTS = {
    "negative_mass": "Negative mass",
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
Analysis = Mapping[str, Any]
Numbers = list[float | None]


class Panel(NamedTuple):
    """Numbers by layer or module: a title, the numbers of a run by its record and its analysis (empty, where it was not
    looked into), what is counted, and from where."""

    title: str
    read: Callable[[Record, Analysis], Numbers]
    counted: str = "Module"
    first: int = 1
    log: bool = False


def inside_runs(results: Path, aggregate: Aggregate) -> Plot | None:
    """A panel for each number that a run has; None where none has any. A run that lacks the number of a layer is left
    out of its panel."""
    analyses = read_runs(results, [record for row in aggregate.rows for record in row.finished])
    rows = [
        (row, row.seeds)
        for row in aggregate.rows
        if any(record.folder in analyses or record.data.get("gradient_norms") for record in row.finished)
    ]
    if not rows:
        return None
    shown = selected(aggregate, rows)
    records = [record for row, _ in shown for record in row.finished]
    seen = []
    for panel in _panels(records, analyses):
        numbers = {record: panel.read(record, analyses.get(record.folder, {})) for record in records}
        if whole := {record: own for record, own in numbers.items() if own and None not in own}:
            seen.append((panel, whole))
    down = -(-len(seen) // _ACROSS)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(down, _ACROSS, squeeze=False)
        for axes, (panel, numbers) in zip(grid.flat, seen, strict=False):
            for row, _ in shown:
                if seeds := [numbers[record] for record in row.finished if record in numbers]:
                    layers = range(panel.first, panel.first + len(seeds[0]))
                    band(axes, layers, seeds, {**look_of(aggregate, row), "markersize": 3}, row.label)
            axes.set_title(panel.title, fontsize=7)
            axes.set_xlabel(panel.counted, fontsize=7)
            axes.tick_params(labelsize=7)
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
            if panel.log:
                logarithmic(axes.yaxis)
        for axes in list(grid.flat)[len(seen) :]:
            axes.set_visible(False)
        legend_below(figure)

    what = (
        "Inside the trained models, by layer (0: the embeddings; the paper's figure 4) and by attention module, cross "
        "attention last: mean (line) and range (band) over seeds. Ranks and the relative residual fall, and cosine "
        "similarity rises, as tokens become alike. Weights are means over heads, gradient norms medians over training. "
        "`docs/analysis.md` says what is measured."
    )
    said = caption(aggregate, what, shown, then=f"{COMMAND} parts=[runs]", among=len(rows))
    return Plot("inside", said, 0.9 + 1.7 * down, paint)


def _panels(records: list[Record], analyses: Mapping[Path, Analysis]) -> list[Panel]:
    """Every panel that some run may have numbers for."""

    def of_stack(stack: str, name: str) -> Panel:
        def read(_: Record, own: Analysis) -> Numbers:
            return own.get("streams", {}).get(stack, {}).get(name, [])

        return Panel(TITLES[name], read, f"Layer, {stack}", first=0)

    def of_weights(name: str) -> Panel:
        def read(_: Record, own: Analysis) -> Numbers:
            modules = _in_order(own.get("modules", {}))
            return [fmean(module[name]) if name in module else None for module in modules]

        return Panel(_WEIGHTS[name], read)

    def of_lemma(name: str) -> Panel:
        def read(_: Record, own: Analysis) -> Numbers:
            return [found[name] for found in _in_order(own.get("lemmas", {})) if name in found]

        return Panel(_LEMMAS[name], read, log=name == "tightness")

    def of_record(field: str, kind: str, title: str) -> Panel:
        def read(record: Record, _: Analysis) -> Numbers:
            values = record.data.get(field) or {}
            return _in_order({name: value for name, value in values.items() if name.startswith(f"{kind}/")})

        return Panel(title, read, log=field == "gradient_norms")

    stacks = dict.fromkeys(stack for own in analyses.values() for stack in own["streams"])
    learned = dict.fromkeys(
        name.partition("/")[0] for record in records for name in record.data.get("learned_scalars") or ()
    )
    return [
        *(of_stack(stack, name) for stack in stacks for name in TITLES),
        *map(of_weights, _WEIGHTS),
        *map(of_lemma, _LEMMAS),
        *(of_record("gradient_norms", kind, f"Gradient, {kind}") for kind in ("query", "key", "value")),
        *(of_record("learned_scalars", kind, symbol(kind)) for kind in learned),
    ]


def _in_order(values: Mapping[str, Any]) -> list[Any]:
    """By the path of a module, cross attention last."""
    return [values[path] for path in sorted(values, key=lambda path: "encoder_attn" in path)]
