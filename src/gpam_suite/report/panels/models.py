"""Many models side by side, as tables of colours with a row a model: more than lines of one panel could tell apart."""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpam_suite.inside.words import ROLES
from gpam_suite.report.plotting import Plot

READS = (
    "how different tokens still are behind each layer (layer 0: the embeddings), how alike attention makes them, how "
    "much of the weights is negative, and the norm of the query projection's gradient. Colours run from the least to "
    "the largest number of a panel (of gradients: of their logarithm). * marks models whose weights are a part of what "
    "they do (a gate, a norm, a term beside them)."
)


class _Panel(NamedTuple):
    """``rows`` has a row a mechanism, a column a layer, counted from ``first``."""

    title: str
    rows: list[list[float | None]]
    first: int = 1
    logarithmic: bool = False


def table(name: str, caption: str, models: list[dict[str, Any]]) -> Plot:
    """A figure of what :func:`gpam_suite.inside.look.look` found of each model, which also has its ``label``."""
    panels = _panels(models)
    across = 2 if len(panels) == 4 else 4
    down = -(-len(panels) // across)

    def paint(figure: Figure) -> None:
        grid = figure.subplots(down, across, squeeze=False, sharey=True)
        for axes, panel in zip(grid.flat, panels, strict=False):
            _table_of_colours(axes, panel)
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for line in grid:
            line[0].set_yticks(np.arange(len(models)) + 0.5, [_starred(model) for model in models], fontsize=7)
            line[0].set_ylim(len(models), 0)

    return Plot(name, caption, 0.4 + down * (0.9 + 0.155 * len(models)), paint)


def _panels(models: list[dict[str, Any]]) -> list[_Panel]:
    roles = list(dict.fromkeys(module["role"] for module in models[0]["modules"].values()))
    panels = [
        _Panel(
            f"Relative residual,\n{stack} stream", [model["streams"][stack]["residual"] for model in models], first=0
        )
        for stack in models[0]["streams"]
    ]
    panels += [_Panel(f"Output cosine,\n{ROLES[role]}", [_cosine(model, role) for model in models]) for role in roles]
    panels += [_Panel(f"Negative mass,\n{ROLES[role]}", [_negative(model, role) for model in models]) for role in roles]
    return panels + [
        _Panel(f"Query gradient,\n{ROLES[role]}", [_query(model, role) for model in models], logarithmic=True)
        for role in roles
    ]


def _of_role(model: dict[str, Any], role: str) -> dict[str, Any]:
    return {path: entry for path, entry in model["modules"].items() if entry["role"] == role}


def _cosine(model: dict[str, Any], role: str) -> list[float | None]:
    return [entry["output"]["cosine"] for entry in _of_role(model, role).values()]


def _negative(model: dict[str, Any], role: str) -> list[float | None]:
    entries = _of_role(model, role).values()
    return [float(np.mean(entry["negative_mass"])) if "negative_mass" in entry else None for entry in entries]


def _query(model: dict[str, Any], role: str) -> list[float | None]:
    return [model["gradients"].get(f"query/{path}") for path in _of_role(model, role)]


def _starred(model: dict[str, Any]) -> str:
    shown = {entry["shown"] for entry in model["modules"].values()}
    return model["label"] + (" (no weights)" if "none" in shown else " *" if "part" in shown else "")


def _table_of_colours(axes: Axes, panel: _Panel) -> None:
    """A heat map with its numbers in it."""
    values = np.array([[np.nan if value is None else value for value in row] for row in panel.rows], dtype=float)
    shade = np.log10(np.where(values > 0, values, np.nan)) if panel.logarithmic else values
    low, high = (float(bound(shade)) if np.isfinite(shade).any() else 0.0 for bound in (np.nanmin, np.nanmax))
    axes.pcolormesh(np.ma.masked_invalid(shade), cmap="cividis", vmin=low, vmax=high if high > low else low + 1)
    for place, value in np.ndenumerate(values):
        dark = np.isfinite(shade[place]) and shade[place] - low < 0.55 * (high - low or 1)
        text = "–" if np.isnan(value) else _short(value)
        at = {"ha": "center", "va": "center", "fontsize": 5, "color": "white" if dark else "black"}
        axes.annotate(text, (place[1] + 0.5, place[0] + 0.5), **at)
    axes.grid(visible=False)
    layers = values.shape[1]
    axes.set_xticks(np.arange(layers) + 0.5, [str(panel.first + layer) for layer in range(layers)], fontsize=7)
    axes.set_xlabel("Layer", fontsize=7)
    axes.set_title(panel.title.replace(" self-", "\nself-"), fontsize=7.5)
    axes.tick_params(length=0)


def _short(value: float) -> str:
    if value and abs(value) < 0.01:
        return f"{value:.0e}".replace("e-0", "e-")
    return f"{value:.2f}".removeprefix("0") if abs(value) < 1 else f"{value:.3g}"
