"""Figures of the trained runs of an experiment: collapse by layer (the paper's figure 4), gradients over training,
attention weights, weight maps, lemmas; from records, histories and ``analysis/runs/`` alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import cm, colormaps, colors, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline
from matplotlib.transforms import Affine2D

from gpam_suite.common.formatting import listed
from gpam_suite.inside.store import QUANTILES, read_runs
from gpam_suite.inside.words import COMMAND, ROLES, TITLES
from gpam_suite.records.folder import read_history
from gpam_suite.records.history_rows import GRADIENT, SCALAR, of_split
from gpam_suite.report.model_looks import APART, SELECTED, look_of, selected
from gpam_suite.report.panels.models import READS, table
from gpam_suite.report.plotting import Plot, fences, legend_below, logarithmic, look, with_margin
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.curves import scored
from gpam_suite.stats.sweep import symbol

_SIDE_BY_SIDE = 3  # models that have panels of their own
_MAPS = {"query": "Query", "key": "Key", "value": "Value", "query_neg": r"Negative query $W_Q^-$"}
_DIVERGING = "PuOr_r"
_FULL_COLOUR = 0.5  # weights beyond it have the same colour
_SHADES = 31
_TWO_BY_TWO = 5.2  # inches: room for four panels and a legend of four lines
Analyses = list[dict[str, Any]]


def plots(results: Path, aggregate: Aggregate) -> list[Plot]:
    """What this experiment's runs have material for."""
    analyses = read_runs(results, [record for row in aggregate.rows for record in row.finished])
    rows = [(row, [analyses[r.folder] for r in row.finished if r.folder in analyses]) for row in aggregate.rows]
    rows = [(row, own) for row, own in rows if own]
    found = []
    if rows:
        found.append(_collapse(aggregate, rows))
    if len(rows) > APART:
        found.append(_every_model(aggregate, rows))
    if trained := _histories(aggregate, GRADIENT):
        found.append(_gradients(aggregate, trained))
        found.append(_gradients_by_layer(aggregate, trained))
    if learned := _histories(aggregate, SCALAR):
        found.append(_scalars(aggregate, learned))
    if rows:
        for role in _roles(rows[0][1]):
            found.append(_attention(aggregate, rows, role))
        role = _roles(rows[0][1])[0]
        if checked := [(row, own) for row, own in rows if any(_lemma(own, role, name) for name, _ in _LEMMAS)]:
            found.append(_lemmas(aggregate, checked, role))
        for row, own in selected(aggregate, rows, _SIDE_BY_SIDE):
            found += [_weight_maps(aggregate, row, one) for one in own if "maps" in one][:1]
    return found


def caption(
    aggregate: Aggregate,
    what: str,
    rows: Sequence[Row],
    seeds: Sequence[int],
    *,
    of: str = "test set",
    then: str | None = f"{COMMAND} parts=[runs]",
    among: int = 0,
) -> str:
    """``what`` is drawn, ``of`` which data, models (selected ``among`` so many) and seeds, and what was called
    ``then``, after the runs' commands, which stand once on their page."""
    made = f" Made by `{then} only={aggregate.experiment}`." if then else ""
    models = listed(row.label for row in rows)
    if len(rows) < among:
        models += f" ({SELECTED})"
    return (
        f"{what} Data: {aggregate.reference['dataset_label']}, {of}. Models: {models}. Seeds: "
        f"{listed(sorted(set(seeds)))}.{made}"
    )


def _seeds(rows: Sequence[tuple[Row, Analyses]]) -> list[int]:
    return [one["seed"] for _, own in rows for one in own]


def _roles(own: Analyses) -> list[str]:
    return list(dict.fromkeys(module["role"] for module in own[0]["modules"].values()))


def band(axes: Axes, x: Sequence[float], seeds: Sequence[Sequence[float]], style: dict[str, Any], label: str) -> None:
    """Mean (line) and range (band) over seeds."""
    values = np.array(seeds, dtype=float)
    axes.fill_between(x, values.min(0), values.max(0), color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(x, values.mean(0), label=label, **style)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))


# ------------------------------------------------------------------------------------------------------------ collapse


def _collapse(aggregate: Aggregate, every: list[tuple[Row, Analyses]]) -> Plot:
    rows = selected(aggregate, every)
    stacks = list(rows[0][1][0]["streams"])

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2 * len(stacks), 2, squeeze=False)
        for place, stack in enumerate(stacks):
            for axes, name in zip(grid[2 * place : 2 * place + 2].flat, TITLES, strict=True):
                for row, own in rows:
                    seeds = [one["streams"][stack][name] for one in own]
                    band(axes, range(len(seeds[0])), seeds, look_of(aggregate, row), row.label)
                axes.set_ylabel(TITLES[name])
                axes.set_xlabel(f"Layer of the {stack}")
        legend_below(figure)

    what = (
        "The paper's figure 4 on trained models: how different tokens still are behind each layer (0: the "
        "embeddings). Relative residual, ||res(X)||/||X|| in the composite norm, and ranks fall, and cosine "
        "similarity rises, as ranks collapse; mean (line) and range (band) over seeds."
    )
    return Plot(
        "collapse",
        caption(aggregate, what, [row for row, _ in rows], _seeds(rows), among=len(every)),
        0.6 + 4.0 * len(stacks),
        paint,
    )


def _every_model(aggregate: Aggregate, rows: list[tuple[Row, Analyses]]) -> Plot:
    models = [{**own[0], "label": row.label} for row, own in rows]
    what = f"Every model after training, the first seed of each: {READS}"
    return table(
        "models", caption(aggregate, what, [row for row, _ in rows], [own[0]["seed"] for _, own in rows]), models
    )


# ----------------------------------------------------------------------------------------------------------- histories

History = dict[str, dict[int, float]]


def _histories(aggregate: Aggregate, split: str) -> list[tuple[Row, list[int], list[History]]]:
    """Row, seeds and each seed's history by name, of rows with a history of ``split``."""
    found = []
    for row in aggregate.rows:
        own = [(record["seed"], of_split(read_history(record.folder), split)) for record in row.finished]
        own = [(seed, history) for seed, history in own if history]
        if own:
            found.append((row, [seed for seed, _ in own], [history for _, history in own]))
    return found


def _mean_curve(histories: list[History], name: str) -> tuple[list[int], np.ndarray]:
    """Updates that every seed logged, and the mean over seeds there."""
    shared = sorted(set.intersection(*(set(history.get(name, {})) for history in histories)))
    return shared, np.array([np.mean([history[name][update] for history in histories]) for update in shared])


def _role_of(path: str) -> str:
    return "cross" if path.endswith("encoder_attn") else path.partition(".")[0]


def _layer_of(path: str) -> int:
    return int(path.split(".")[2])


_ROLE_DASH = {"encoder": (0, (1.2, 1.2)), "decoder": "-", "cross": (0, (5, 1.5))}


def _paths(histories: list[History], kind: str) -> list[str]:
    names = [name.partition("/")[2] for name in histories[0] if name.partition("/")[0] == kind]
    return sorted(names, key=lambda path: (list(_ROLE_DASH).index(_role_of(path)), _layer_of(path)))


def _gradients(aggregate: Aggregate, every: list[tuple[Row, list[int], list[History]]]) -> Plot:
    rows = selected(aggregate, every, _SIDE_BY_SIDE)
    kinds = [kind for kind in _MAPS if any(_paths(histories, kind) for _, _, histories in rows)]
    layers = 1 + max(_layer_of(path) for _, _, histories in rows for path in _paths(histories, "query"))
    several = len({_role_of(path) for path in _paths(rows[0][2], "query")}) > 1
    shades = [colormaps["viridis"](0.92 * layer / max(1, layers - 1)) for layer in range(layers)]

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(rows), len(kinds), squeeze=False, sharex=True, sharey=True)
        for line, (row, _, histories) in zip(grid, rows, strict=True):
            for axes, kind in zip(line, kinds, strict=True):
                curves = {path: _mean_curve(histories, f"{kind}/{path}") for path in _paths(histories, kind)}
                for path, curve in curves.items():
                    role, layer = _role_of(path), _layer_of(path)
                    label = f"Layer {layer + 1}" + (f", {ROLES[role]}" if several else "")
                    style = {"color": shades[layer], "linestyle": _ROLE_DASH[role], "linewidth": 1.1}
                    axes.plot(*curve, label=label, **style)
                if not any(np.any(norms) for _, norms in curves.values()):  # a logarithm has no place for zero
                    text = "zero" if curves else "none"
                    axes.annotate(text, (0.5, 0.5), xycoords="axes fraction", ha="center", style="italic")
                axes.set_yscale("log")
            line[0].set_ylabel(f"{row.label}\nGradient norm")
        for axes, kind in zip(grid[0], kinds, strict=True):
            axes.set_title(_MAPS[kind])
        for axes in grid[-1]:
            axes.set_xlabel("Updates")
        legend_below(figure)

    what = (
        "Gradient norms over training, ||dL/dW|| (Frobenius, before clipping, loss in nats for each "
        f"{scored(aggregate.task)}, log scale) of each layer's projections: mean over seeds."
    )
    seeds = [seed for _, own, _ in rows for seed in own]
    said = caption(aggregate, what, [row for row, _, _ in rows], seeds, of="training", then=None, among=len(every))
    return Plot("gradients", said, 0.9 + 1.7 * len(rows), paint)


def _gradients_by_layer(aggregate: Aggregate, every: list[tuple[Row, list[int], list[History]]]) -> Plot:
    rows = selected(aggregate, every)
    kinds = ("query", "key", "value")
    roles = [role for role in ROLES if any(_role_of(path) == role for path in _paths(rows[0][2], "query"))]

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(roles), len(kinds), squeeze=False, sharex="row")
        for line, role in zip(grid, roles, strict=True):
            for axes, kind in zip(line, kinds, strict=True):
                for row, _, histories in rows:
                    paths = [path for path in _paths(histories, kind) if _role_of(path) == role]
                    seeds = [
                        [float(np.median(list(h[f"{kind}/{path}"].values()))) for path in paths] for h in histories
                    ]
                    band(axes, [_layer_of(path) + 1 for path in paths], seeds, look_of(aggregate, row), row.label)
                logarithmic(axes.yaxis)
                axes.set_xlabel("Layer")
            line[0].set_ylabel(f"Gradient norm,\n{ROLES[role]}")
        for axes, kind in zip(grid[0], kinds, strict=True):
            axes.set_title(_MAPS[kind])
        legend_below(figure)

    what = (
        "Gradient norms by layer: median over the updates logged of ||dL/dW|| (Frobenius, before clipping, log "
        "scale); mean (line) and range (band) over seeds."
    )
    seeds = [seed for _, own, _ in rows for seed in own]
    said = caption(aggregate, what, [row for row, _, _ in rows], seeds, of="training", then=None, among=len(every))
    return Plot("gradients-by-layer", said, 1.0 + 1.9 * len(roles), paint)


def _scalars(aggregate: Aggregate, every: list[tuple[Row, list[int], list[History]]]) -> Plot:
    rows = selected(aggregate, every, _SIDE_BY_SIDE)
    kinds = list(dict.fromkeys(name.partition("/")[0] for _, _, histories in rows for name in histories[0]))

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, len(rows), squeeze=False)[0]
        for axes, (row, _, histories) in zip(grid, rows, strict=True):
            for name in histories[0]:
                kind = name.partition("/")[0]
                style = {**look(1 + kinds.index(kind)), "marker": None, "linewidth": 0.9}
                axes.plot(*_mean_curve(histories, name), label=symbol(kind), **style)
            axes.set_title(row.label)
            axes.set_xlabel("Updates")
        grid[0].set_ylabel("Value")
        legend_below(figure)

    what = "What mechanisms learn beside matrices, over training: one line for each module (and head), mean over seeds."
    seeds = [seed for _, own, _ in rows for seed in own]
    said = caption(aggregate, what, [row for row, _, _ in rows], seeds, of="training", then=None, among=len(every))
    return Plot("learned-scalars", said, 3.0, paint)


# ----------------------------------------------------------------------------------------------------------- attention


def _modules(one: dict[str, Any], role: str) -> list[dict[str, Any]]:
    return [module for module in one["modules"].values() if module["role"] == role]


def _attention(aggregate: Aggregate, every: list[tuple[Row, Analyses]], role: str) -> Plot:
    rows = selected(aggregate, every)
    shown = [(row, own) for row, own in rows if all("quantiles" in module for module in _modules(own[0], role))]
    silent = [row.label for row, own in rows if (row, own) not in shown]
    partial = [row.label for row, own in shown if any(module["shown"] == "part" for module in _modules(own[0], role))]
    panels = (
        ("negative_mass", "Share of negative mass", None),
        ("entropy", "Entropy (nats)", "entropy_uniform"),
        ("first", "Attention to the first token", "first_uniform"),
    )

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2, 2)
        for axes, (name, title, uniform) in zip(grid.flat, panels, strict=False):
            for index, (row, own) in enumerate(shown):
                heads = np.array([[np.array(module[name]) for module in _modules(one, role)] for one in own])
                layers = 1 + np.arange(heads.shape[1])
                spread = np.repeat(layers[None, :, None], heads.shape[0], 0) + _aside(index, len(shown))
                style = look_of(aggregate, row)
                dots = {"marker": style["marker"], "markersize": 2.2, "markerfacecolor": "none", "markeredgewidth": 0.5}
                axes.plot(
                    np.broadcast_to(spread, heads.shape).ravel(),
                    heads.ravel(),
                    linestyle="none",
                    color=style["color"],
                    **dots,
                )
                axes.plot(layers + _aside(index, len(shown)), heads.mean((0, 2)), label=row.label, **style)
            if uniform and shown:
                level = np.mean([[module[uniform][0] for module in _modules(one, role)] for one in shown[0][1]], axis=0)
                axes.plot(
                    1 + np.arange(len(level)), level, color="#888888", linestyle=":", linewidth=1, label="uniform"
                )
            axes.set_ylabel(title)
        _quantiles(grid[1, 1], aggregate, shown, role)
        for axes in grid.flat:
            axes.set_xlabel("Layer")
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        legend_below(figure)

    note = f" No weights to show: {listed(silent)}." if silent else ""
    note += f" Weights are a part of what these do: {listed(partial)}." if partial else ""
    what = (
        f"Attention weights, {ROLES[role]}: share of negative mass, entropy of |weights| and attention to the first "
        "token (lines: means; small marks: each head of each seed; dotted: uniform attention), and the weights' "
        "distribution (thin bar: 1 % to 99 %, thick bar: quartiles, mark: median; bars of a model with far larger "
        f"weights leave the panel).{note}"
    )
    said = caption(aggregate, what, [row for row, _ in rows], _seeds(rows), among=len(every))
    return Plot(f"attention-{role}", said, _TWO_BY_TWO, paint)


def _aside(index: int, count: int) -> float:
    """Models side by side around the layer's number."""
    return 0.5 * ((index + 0.5) / count - 0.5)


def _quantiles(axes: Axes, aggregate: Aggregate, shown: list[tuple[Row, Analyses]], role: str) -> None:
    low, first, middle, third, high = (QUANTILES.index(q) for q in (0.01, 0.25, 0.5, 0.75, 0.99))
    ends: list[float] = []
    for index, (row, own) in enumerate(shown):
        values = np.mean([[module["quantiles"] for module in _modules(one, role)] for one in own], axis=0)
        style, x = look_of(aggregate, row), 1 + np.arange(len(values)) + _aside(index, len(shown))
        axes.vlines(x, values[:, low], values[:, high], color=style["color"], linewidth=1)
        axes.vlines(x, values[:, first], values[:, third], color=style["color"], linewidth=3.5)
        axes.plot(x, values[:, middle], linestyle="none", marker=style["marker"], color=style["color"], markersize=3.5)
        ends += [*values[:, low], *values[:, high]]
    if ends:
        axes.set_ylim(*with_margin(fences(ends)))
    axes.axhline(0, color="#888888", linewidth=0.6)
    axes.set_ylabel("Attention weight")


# ---------------------------------------------------------------------------------------------------------------- maps


def _weight_maps(aggregate: Aggregate, row: Row, one: dict[str, Any]) -> Plot:
    weights = {path: np.array(values) for path, values in one["maps"]["weights"].items() if values is not None}
    chosen = _chosen(list(weights))
    heads = min(4, max((len(weights[path]) for path in chosen), default=0))

    def paint(figure: Figure) -> None:
        if not chosen:
            axes = figure.add_subplot()
            axes.annotate(f"{row.label} has no attention weights to show", (0.5, 0.5), ha="center")
            axes.set_axis_off()
            return
        shades = cm.ScalarMappable(
            colors.Normalize(-_FULL_COLOUR, _FULL_COLOUR), colormaps[_DIVERGING].resampled(_SHADES)
        )
        grid = figure.subplots(len(chosen), heads, squeeze=False)
        for line, path in zip(grid, chosen, strict=True):
            role = _role_of(path)
            sources = one["maps"]["words"]["encoder" if role in ("encoder", "cross") else "decoder"]
            targets = one["maps"]["words"]["encoder" if role == "encoder" else "decoder"]
            for number, axes in enumerate(line):
                if number >= len(weights[path]):
                    axes.set_visible(False)
                    continue
                _cells(axes, weights[path][number], shades)
                axes.set_aspect("equal")
                axes.grid(visible=False)
                axes.set_xticks(
                    np.arange(len(sources)) + 0.5, [_word(word) for word in sources], rotation=90, fontsize=4.5
                )
                axes.set_yticks(
                    np.arange(len(targets)) + 0.5,
                    [_word(word) for word in targets] if number == 0 else [],
                    fontsize=4.5,
                )
                axes.tick_params(length=0, pad=1)
                axes.set_title(f"Head {number + 1}", fontsize=7)
            line[0].set_ylabel(f"Layer {_layer_of(path) + 1},\n{ROLES[role]}", fontsize=7)
        figure.colorbar(shades, ax=list(grid.flat), label="Attention weight", shrink=0.6, extend="both")

    what = (
        f"Attention weights of {row.label} on one text: each row a token that looks (of cross attention, of the "
        "target), each column a token looked at; violet is negative, white zero, orange positive, and "
        f"beyond {_FULL_COLOUR:g} either way the colour stays the same."
    )
    name = f"maps-{row.model}" + ("" if row.overrides_label == "default" else f"-{row.overrides_label}")
    return Plot(
        name,
        caption(aggregate, what, [row], [one["seed"]], of="a sentence of our own"),
        0.3 + 1.75 * max(1, len(chosen)),
        paint,
    )


def _cells(axes: Axes, matrix: np.ndarray, shades: cm.ScalarMappable) -> None:
    """A square for each weight but zero, first row on top; one path for all of one shade keeps the file small."""
    colours = shades.to_rgba(matrix)
    for colour in np.unique(colours[matrix != 0], axis=0):
        places = np.argwhere((colours == colour).all(-1) & (matrix != 0))
        squares = [Outline.unit_rectangle().transformed(Affine2D().translate(x, y)) for y, x in places]
        axes.add_patch(PathPatch(Outline.make_compound_path(*squares), facecolor=colour, linewidth=0))
    axes.set_xlim(0, matrix.shape[1])
    axes.set_ylim(matrix.shape[0], 0)


def _chosen(paths: list[str]) -> list[str]:
    """First, middle and last layer of a language model; the last of each role in translation."""
    roles = {role: [path for path in paths if _role_of(path) == role] for role in _ROLE_DASH}
    roles = {role: own for role, own in roles.items() if own}
    if len(roles) == 1:
        (own,) = roles.values()
        return list(dict.fromkeys([own[0], own[len(own) // 2], own[-1]]))
    return [own[-1] for own in roles.values()]


def _word(word: str) -> str:
    short = word if len(word) <= 9 else f"{word[:8]}…"
    return short.replace("$", r"\$")


# -------------------------------------------------------------------------------------------------------------- lemmas


_LEMMAS = (
    ("tightness", "Bound / residual"),
    ("jacobian_pos", r"Jacobian norm of $P_+$ / max."),
    ("jacobian_neg", r"Jacobian norm of $P_-$ / max."),
    ("opposition_cosine", r"Cosine of $S_-$ and $S_+$"),
)


def _lemma(own: Analyses, role: str, name: str) -> list[list[float]]:
    """A number of every layer of a role, a list for each seed; none where some layer has no such number."""
    paths = [path for path, module in own[0]["modules"].items() if module["role"] == role]
    seeds = [[one["lemmas"].get(path, {}).get(name) for path in paths] for one in own]
    return [] if any(value is None for seed in seeds for value in seed) else seeds


def _lemmas(aggregate: Aggregate, every: list[tuple[Row, Analyses]], role: str) -> Plot:
    rows = selected(aggregate, every)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(2, 2)
        for axes, (name, title) in zip(grid.flat, _LEMMAS, strict=True):
            for row, own in rows:
                if seeds := _lemma(own, role, name):
                    style = look_of(aggregate, row, [row for row, _ in rows])
                    band(axes, range(1, 1 + len(seeds[0])), seeds, style, row.label)
            axes.set_ylabel(title)
            axes.set_xlabel("Layer")
        grid[0, 0].set_yscale("log")
        grid[1, 1].axhline(-1, color="#888888", linestyle=":", linewidth=1)
        legend_below(figure)

    what = (
        f"The lemmas on trained layers, {ROLES[role]}: right-hand side of lemma 1 (softmax) or 4 (daGPAM) over the "
        "measured residual (median, log scale; 1 would be tight); lemma 3's total norm of the softmax Jacobian as a "
        "share of its maximum (1: uniform rows); how opposed the scores of the two branches are (dotted: lemma 5's "
        "assumption); mean and range over seeds."
    )
    return Plot(
        "lemmas", caption(aggregate, what, [row for row, _ in rows], _seeds(rows), among=len(every)), _TWO_BY_TWO, paint
    )
