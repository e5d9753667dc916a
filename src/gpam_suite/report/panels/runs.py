"""Figures of the trained runs of an experiment, by layer: collapse (the paper's figure 4), attention weights, lemmas,
gradients, learned lambdas; from records and ``analysis/runs/`` alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from matplotlib import ticker
from matplotlib.figure import Figure

from gpam_suite.inside.store import COMMAND, ROLES, TITLES, read_runs
from gpam_suite.records.folder import Record
from gpam_suite.report.model_looks import look_of, selected
from gpam_suite.report.plotting import Plot, band, legend_below, logarithmic
from gpam_suite.report.provenance import caption
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.comparisons import of_kind
from gpam_suite.stats.sweep import symbol

_WEIGHTS = {
    "negative_mass": "Share of negative mass",
    "entropy": "Entropy (nats)",
    "first": "Attention to the first token",
}
_LEMMAS = {
    "tightness": "Bound / residual",
    "jacobian_pos": r"Jacobian norm of $P_+$ / max.",
    "jacobian_neg": r"Jacobian norm of $P_-$ / max.",
    "opposition_cosine": r"Cosine of $S_-$ and $S_+$",
}
_MEAN = "mean (line) and range (band) over seeds."
_THEN = f"{COMMAND} parts=[runs]"
Numbers = list[float | None]
Found = tuple[Row, dict[int, Any]]
"""A row and what there is of each of its seeds."""


class Panel(NamedTuple):
    """A number by layer: its title, the numbers of a seed by what there is of it, and what is below the axis."""

    title: str
    read: Callable[[Any], Numbers]
    layers: str = "Layer"
    first: int = 1
    log: bool = False


def plots(results: Path, aggregate: Aggregate) -> list[Plot]:
    """What this experiment's runs have material for."""
    analyses = read_runs(results, [record for row in aggregate.rows for record in row.finished])
    found = []
    if looked := _with_material(aggregate, lambda record: analyses.get(record.folder)):
        found += [_collapse(aggregate, looked), _attention(aggregate, looked)]
        if checked := [(row, own) for row, own in looked if any(one["lemmas"] for one in own.values())]:
            found.append(_lemmas(aggregate, checked))
    if trained := _with_material(aggregate, lambda record: record.data.get("gradient_norms")):
        found.append(_gradients(aggregate, trained))
    if learned := _with_material(aggregate, lambda record: record.data.get("learned_scalars")):
        found.append(_scalars(aggregate, learned))
    return found


def _with_material(aggregate: Aggregate, read: Callable[[Record], Any]) -> list[Found]:
    """The rows of which some seed has what ``read`` finds for its record."""
    found = [(row, {record["seed"]: one for record in row.finished if (one := read(record))}) for row in aggregate.rows]
    return [(row, own) for row, own in found if own]


def _first(rows: Sequence[Found]) -> Any:
    """What there is of the first seed of the first row."""
    return next(iter(rows[0][1].values()))


def _plot(
    name: str, aggregate: Aggregate, every: list[Found], panels: list[Panel], what: str, across: int = 2, **words: str
) -> Plot:
    """``panels``, so many ``across``: in each the mean and the range over seeds of every row; a seed that lacks the
    number of a layer is left out."""
    rows, down = selected(aggregate, every), -(-len(panels) // across)

    def paint(figure: Figure) -> None:
        for axes, panel in zip(figure.subplots(down, across, squeeze=False).flat, panels, strict=True):
            for row, own in rows:
                seeds = [numbers for one in own.values() if (numbers := panel.read(one)) and None not in numbers]
                if seeds:
                    layers = range(panel.first, panel.first + len(seeds[0]))
                    band(axes, layers, seeds, look_of(aggregate, row), row.label)
            axes.set_ylabel(panel.title)
            axes.set_xlabel(panel.layers)
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
            if panel.log:
                logarithmic(axes.yaxis)
        legend_below(figure)

    said = caption(aggregate, f"{what}; {_MEAN}", rows, among=len(every), **words)
    return Plot(name, said, 0.9 + 2.0 * down, paint)


def _collapse(aggregate: Aggregate, every: list[Found]) -> Plot:
    def panel(stack: str, name: str) -> Panel:
        return Panel(TITLES[name], lambda one: one["streams"][stack][name], f"Layer of the {stack}", first=0)

    panels = [panel(stack, name) for stack in _first(every)["streams"] for name in TITLES]
    what = (
        "The paper's figure 4 on trained models: how different tokens still are behind each layer (0: the "
        "embeddings). Relative residual, ||res(X)||/||X|| in the composite norm, and ranks fall, and cosine "
        "similarity rises, as ranks collapse"
    )
    return _plot("collapse", aggregate, every, panels, what, then=_THEN)


def _of_role(one: Mapping[str, Any], role: str) -> dict[str, Any]:
    return {path: module for path, module in one["modules"].items() if module["role"] == role}


def _roles(every: list[Found]) -> list[str]:
    return list(dict.fromkeys(module["role"] for module in _first(every)["modules"].values()))


def _attention(aggregate: Aggregate, every: list[Found]) -> Plot:
    def panel(role: str, name: str) -> Panel:
        def read(one: Mapping[str, Any]) -> Numbers:
            heads = [module.get(name) for module in _of_role(one, role).values()]
            return [own and fmean(own) for own in heads]

        return Panel(_WEIGHTS[name], read, f"Layer, {ROLES[role]}")

    panels = [panel(role, name) for role in _roles(every) for name in _WEIGHTS]
    what = (
        "Attention weights: share of negative mass, entropy of |weights| and attention to the first token, means over "
        "heads"
    )
    return _plot("attention", aggregate, every, panels, what, across=3, then=_THEN)


def _lemmas(aggregate: Aggregate, every: list[Found]) -> Plot:
    role = _roles(every)[0]

    def panel(name: str, title: str) -> Panel:
        def read(one: Mapping[str, Any]) -> Numbers:
            return [one["lemmas"].get(path, {}).get(name) for path in _of_role(one, role)]

        return Panel(title, read, log=name == "tightness")

    what = (
        f"The lemmas on trained layers, {ROLES[role]}: right-hand side of lemma 1 (softmax) or 4 (daGPAM) over the "
        "measured residual (median, log scale; 1 would be tight); lemma 3's total norm of the softmax Jacobian as a "
        "share of its maximum (1: uniform rows); how opposed the scores of the two branches are (lemma 5 assumes -1)"
    )
    panels = [panel(name, title) for name, title in _LEMMAS.items()]
    return _plot("lemmas", aggregate, every, panels, what, then=_THEN)


def _gradients(aggregate: Aggregate, every: list[Found]) -> Plot:
    def role_of(name: str) -> str:
        return "cross" if name.endswith("encoder_attn") else name.partition("/")[2].partition(".")[0]

    def panel(role: str, kind: str) -> Panel:
        def read(norms: Mapping[str, float | None]) -> Numbers:
            return of_kind({name: value for name, value in norms.items() if role_of(name) == role}, kind)

        return Panel(f"{kind.capitalize()} gradient", read, f"Layer, {ROLES[role]}", log=True)

    roles = dict.fromkeys(map(role_of, _first(every)))
    panels = [panel(role, kind) for role in roles for kind in ("query", "key", "value")]
    what = "Gradient norms: median over the updates logged of ||dL/dW|| (Frobenius, before clipping, log scale)"
    return _plot("gradients-by-layer", aggregate, every, panels, what, across=3, of="training")


def _scalars(aggregate: Aggregate, every: list[Found]) -> Plot:
    kinds = dict.fromkeys(name.partition("/")[0] for _, own in every for one in own.values() for name in one)
    modules = "Module (and head), first to last"
    panels = [Panel(symbol(kind), lambda one, kind=kind: of_kind(one, kind), modules) for kind in kinds]
    what = "What mechanisms learn beside matrices, at the end of training"
    return _plot("learned-scalars", aggregate, every, panels, what, across=len(kinds), of="training")
