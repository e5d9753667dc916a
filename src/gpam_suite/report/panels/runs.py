"""Figures of the trained runs of an experiment: collapse by layer (the paper's figure 4), gradients, learned lambdas,
attention weights, weight maps, lemmas; from records, histories and ``analysis/runs/`` alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpam_suite.common.formatting import listed
from gpam_suite.inside.store import COMMAND, QUANTILES, ROLES, TITLES, read_runs
from gpam_suite.records.folder import read_history
from gpam_suite.records.history_rows import GRADIENT, SCALAR, of_split
from gpam_suite.report.model_looks import look_of, selected
from gpam_suite.report.plotting import FULL_COLOUR, Plot, band, legend_below, logarithmic, look, weights_shown
from gpam_suite.report.provenance import caption
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.sweep import symbol

_THEN = f"{COMMAND} parts=[runs]"
_SIDE_BY_SIDE = 3  # models that have panels of their own
_GRADIENTS = {"query": "Query", "key": "Key", "value": "Value"}
_TWO_BY_TWO = 5.2  # inches: room for four panels and a legend of four lines
_WEIGHTS = {
    "negative_mass": ("Share of negative mass", None),
    "entropy": ("Entropy (nats)", "entropy_uniform"),
    "first": ("Attention to the first token", "first_uniform"),
}
"""What is drawn of attention weights: its title, and what uniform attention would have."""
_LEMMAS = {
    "tightness": "Bound / residual",
    "jacobian_pos": r"Jacobian norm of $P_+$ / max.",
    "jacobian_neg": r"Jacobian norm of $P_-$ / max.",
    "opposition_cosine": r"Cosine of $S_-$ and $S_+$",
}
Found = tuple[Row, dict[int, Any]]
"""A row and what there is of each of its seeds."""


def plots(results: Path, aggregate: Aggregate) -> list[Plot]:
    """What this experiment's runs have material for."""
    analyses = read_runs(results, [record for row in aggregate.rows for record in row.finished])
    rows = _with_material(aggregate, lambda record: analyses.get(record.folder))
    found = [_collapse(aggregate, rows)] if rows else []
    if trained := _with_material(aggregate, lambda record: of_split(read_history(record.folder), GRADIENT)):
        found.append(_gradients(aggregate, trained))
    if learned := _with_material(aggregate, lambda record: of_split(read_history(record.folder), SCALAR)):
        found.append(_scalars(aggregate, learned))
    roles = list(dict.fromkeys(module["role"] for module in _first(rows)["modules"].values())) if rows else []
    found += [_attention(aggregate, rows, role) for role in roles]
    if checked := [one for one in rows if any(_lemma(one[1], roles[0], name) for name in _LEMMAS)]:
        found.append(_lemmas(aggregate, checked, roles[0]))
    for row, own in selected(aggregate, rows, _SIDE_BY_SIDE):
        found += [_weight_maps(aggregate, row, seed, one["maps"]) for seed, one in own.items() if "maps" in one][:1]
    return found


def _with_material(aggregate: Aggregate, read: Callable[[Any], Any]) -> list[Found]:
    """The rows of which some seed has what ``read`` finds for its record."""
    found = [(row, {record["seed"]: one for record in row.finished if (one := read(record))}) for row in aggregate.rows]
    return [(row, own) for row, own in found if own]


def _first(rows: Sequence[Found]) -> Any:
    """What there is of the first seed of the first row."""
    return next(iter(rows[0][1].values()))


def _collapse(aggregate: Aggregate, every: list[Found]) -> Plot:
    rows = selected(aggregate, every)
    stacks = list(_first(rows)["streams"])

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2 * len(stacks), 2, squeeze=False)
        for place, stack in enumerate(stacks):
            for axes, name in zip(grid[2 * place : 2 * place + 2].flat, TITLES, strict=True):
                seeds = {row: [one["streams"][stack][name] for one in own.values()] for row, own in rows}
                _by_layer(axes, aggregate, seeds, TITLES[name], first=0, layer=f"Layer of the {stack}")
        legend_below(figure)

    what = (
        "The paper's figure 4 on trained models: how different tokens still are behind each layer (0: the "
        "embeddings). Relative residual, ||res(X)||/||X|| in the composite norm, and ranks fall, and cosine "
        "similarity rises, as ranks collapse; mean (line) and range (band) over seeds."
    )
    said = caption(aggregate, what, rows, then=_THEN, among=len(every))
    return Plot("collapse", said, 0.6 + 4.0 * len(stacks), paint)


def _by_layer(
    axes: Axes, aggregate: Aggregate, seeds: Mapping[Row, Any], title: str, first: int = 1, layer: str = "Layer"
) -> None:
    """One panel: of each row the mean and the range over seeds, whose numbers are by layer from the ``first`` on."""
    for row, values in seeds.items():
        if len(values):
            band(axes, range(first, first + len(values[0])), values, look_of(aggregate, row), row.label)
    axes.set_ylabel(title)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axes.set_xlabel(layer)


def _role_of(path: str) -> str:
    return "cross" if path.endswith("encoder_attn") else path.partition(".")[0]


def _layer_of(path: str) -> int:
    return int(path.split(".")[2])


def _by_role(paths: Sequence[str]) -> dict[str, list[str]]:
    return {role: own for role in ROLES if (own := [path for path in paths if _role_of(path) == role])}


def _gradients(aggregate: Aggregate, every: list[Found]) -> Plot:
    rows = selected(aggregate, every)
    paths = sorted((name.partition("/")[2] for name in _first(rows) if name.startswith("query/")), key=_layer_of)
    by_role = _by_role(paths)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(by_role), len(_GRADIENTS), squeeze=False, sharex="row")
        for line, (role, modules) in zip(grid, by_role.items(), strict=True):
            for axes, kind in zip(line, _GRADIENTS, strict=True):
                medians = {
                    row: [[_median(history, f"{kind}/{path}") for path in modules] for history in own.values()]
                    for row, own in rows
                }
                _by_layer(axes, aggregate, medians, "")
                logarithmic(axes.yaxis)
            line[0].set_ylabel(f"Gradient norm,\n{ROLES[role]}")
        for axes, title in zip(grid[0], _GRADIENTS.values(), strict=True):
            axes.set_title(title)
        legend_below(figure)

    what = (
        "Gradient norms by layer: median over the updates logged of ||dL/dW|| (Frobenius, before clipping, log "
        "scale); mean (line) and range (band) over seeds."
    )
    said = caption(aggregate, what, rows, of="training", among=len(every))
    return Plot("gradients-by-layer", said, 1.0 + 1.9 * len(by_role), paint)


def _median(history: Mapping[str, Mapping[int, float]], name: str) -> float:
    return float(np.median(list(history[name].values()))) if name in history else np.nan


def _scalars(aggregate: Aggregate, every: list[Found]) -> Plot:
    rows = selected(aggregate, every, _SIDE_BY_SIDE)
    names = {row: list(next(iter(own.values()))) for row, own in rows}
    kinds = list(dict.fromkeys(name.partition("/")[0] for own in names.values() for name in own))

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(rows), squeeze=False)[0]
        for axes, (row, own) in zip(grid, rows, strict=True):
            for name in names[row]:
                kind = name.partition("/")[0]
                style = {**look(1 + kinds.index(kind)), "marker": None, "linewidth": 0.9}
                updates = sorted(set.intersection(*(set(history.get(name, {})) for history in own.values())))
                means = [np.mean([history[name][update] for history in own.values()]) for update in updates]
                axes.plot(updates, means, label=symbol(kind), **style)
            axes.set_title(row.label)
            axes.set_xlabel("Updates")
        grid[0].set_ylabel("Value")
        legend_below(figure)

    what = "What mechanisms learn beside matrices, over training: one line for each module (and head), mean over seeds."
    said = caption(aggregate, what, rows, of="training", among=len(every))
    return Plot("learned-scalars", said, 3.0, paint)


def _modules(one: dict[str, Any], role: str) -> list[dict[str, Any]]:
    return [module for module in one["modules"].values() if module["role"] == role]


def _attention(aggregate: Aggregate, every: list[Found], role: str) -> Plot:
    rows = selected(aggregate, every)
    of_row = {row: [_modules(one, role) for one in own.values()] for row, own in rows}  # seeds of layers
    shown = [row for row, _ in rows if all("quantiles" in module for module in of_row[row][0])]
    silent = [row.label for row, _ in rows if row not in shown]
    partial = [row.label for row in shown if any(module["shown"] == "part" for module in of_row[row][0])]

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2, 2)
        for axes, (name, (title, uniform)) in zip(grid.flat, _WEIGHTS.items(), strict=False):
            heads = {row: np.array([[module[name] for module in layers] for layers in of_row[row]]) for row in shown}
            of_heads = {row: np.moveaxis(own, 2, 1).reshape(-1, own.shape[1]) for row, own in heads.items()}
            _by_layer(axes, aggregate, of_heads, title)
            if uniform and shown:
                level = np.mean([[module[uniform][0] for module in layers] for layers in of_row[shown[0]]], axis=0)
                axes.plot(range(1, 1 + len(level)), level, color="#888888", linestyle=":", linewidth=1, label="uniform")
        for row in shown:
            values = np.mean([[module["quantiles"] for module in layers] for layers in of_row[row]], axis=0)
            low, middle, high = (values[:, QUANTILES.index(q)] for q in (0.01, 0.5, 0.99))
            numbers, style = range(1, 1 + len(values)), look_of(aggregate, row)
            grid[1, 1].fill_between(numbers, low, high, color=style["color"], alpha=0.15, linewidth=0)
            grid[1, 1].plot(numbers, middle, **style)
        grid[1, 1].axhline(0, color="#888888", linewidth=0.6)
        _by_layer(grid[1, 1], aggregate, {}, "Attention weight")
        legend_below(figure)

    note = f" No weights to show: {listed(silent)}." if silent else ""
    note += f" Weights are a part of what these do: {listed(partial)}." if partial else ""
    what = (
        f"Attention weights, {ROLES[role]}: share of negative mass, entropy of |weights| and attention to the first "
        "token (mean and range over heads and seeds; dotted: uniform attention), and the weights' distribution "
        f"(median, and 1 % to 99 %).{note}"
    )
    return Plot(f"attention-{role}", caption(aggregate, what, rows, then=_THEN, among=len(every)), _TWO_BY_TWO, paint)


def _weight_maps(aggregate: Aggregate, row: Row, seed: int, maps: dict[str, Any]) -> Plot:
    weights = {path: np.array(values) for path, values in maps["weights"].items() if values is not None}
    chosen = _chosen(list(weights))
    heads = min(4, max((len(weights[path]) for path in chosen), default=0))

    def paint(figure: Figure) -> None:
        if not chosen:
            axes = figure.add_subplot()
            axes.annotate(f"{row.label} has no attention weights to show", (0.5, 0.5), ha="center")
            axes.set_axis_off()
            return
        grid, image = figure.subplots(len(chosen), heads, squeeze=False), None
        for line, path in zip(grid, chosen, strict=True):
            role = _role_of(path)
            sources = maps["words"]["encoder" if role in ("encoder", "cross") else "decoder"]
            targets = maps["words"]["encoder" if role == "encoder" else "decoder"]
            for number, axes in enumerate(line):
                if number >= len(weights[path]):
                    axes.set_visible(False)
                    continue
                image = weights_shown(axes, weights[path][number], targets if number == 0 else (), sources)
                axes.set_title(f"Head {number + 1}", fontsize=7)
            line[0].set_ylabel(f"Layer {_layer_of(path) + 1},\n{ROLES[role]}", fontsize=7)
        figure.colorbar(image, ax=list(grid.flat), label="Attention weight", shrink=0.6, extend="both")

    what = (
        f"Attention weights of {row.label} on one text: each row a token that looks (of cross attention, of the "
        "target), each column a token looked at; violet is negative, white zero, orange positive, and "
        f"beyond {FULL_COLOUR:g} either way the colour stays the same."
    )
    name = f"maps-{row.model}" + ("" if row.overrides_label == "default" else f"-{row.overrides_label}")
    said = caption(aggregate, what, [(row, [seed])], of="a text of the test set", then=_THEN)
    return Plot(name, said, 0.3 + 1.75 * max(1, len(chosen)), paint)


def _chosen(paths: list[str]) -> list[str]:
    """First, middle and last layer of a language model; the last of each role in translation."""
    roles = list(_by_role(paths).values())
    if len(roles) != 1:
        return [own[-1] for own in roles]
    (own,) = roles
    return list(dict.fromkeys([own[0], own[len(own) // 2], own[-1]]))


def _lemma(own: Mapping[int, Any], role: str, name: str) -> list[list[float]]:
    """A number of every layer of a role, a list for each seed; none where some layer has no such number."""
    paths = [path for path, module in next(iter(own.values()))["modules"].items() if module["role"] == role]
    seeds = [[one["lemmas"].get(path, {}).get(name) for path in paths] for one in own.values()]
    return [] if any(value is None for seed in seeds for value in seed) else seeds


def _lemmas(aggregate: Aggregate, every: list[Found], role: str) -> Plot:
    rows = selected(aggregate, every)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2, 2)
        for axes, (name, title) in zip(grid.flat, _LEMMAS.items(), strict=True):
            _by_layer(axes, aggregate, {row: _lemma(own, role, name) for row, own in rows}, title)
        grid[0, 0].set_yscale("log")
        grid[1, 1].axhline(-1, color="#888888", linestyle=":", linewidth=1)
        legend_below(figure)

    what = (
        f"The lemmas on trained layers, {ROLES[role]}: right-hand side of lemma 1 (softmax) or 4 (daGPAM) over the "
        "measured residual (median, log scale; 1 would be tight); lemma 3's total norm of the softmax Jacobian as a "
        "share of its maximum (1: uniform rows); how opposed the scores of the two branches are (dotted: lemma 5's "
        "assumption); mean and range over seeds."
    )
    return Plot("lemmas", caption(aggregate, what, rows, then=_THEN, among=len(every)), _TWO_BY_TWO, paint)
