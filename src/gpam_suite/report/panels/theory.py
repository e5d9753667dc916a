"""Figures that need no run: hulls (the paper's figure 1), output space (3), collapse by depth (5); from
``analysis/*.json`` alone."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpam_suite.common.formatting import listed
from gpam_suite.records import store
from gpam_suite.report.panels import ANALYSE
from gpam_suite.report.plotting import COLOURS, GREY, Plot, band, legend_below, look
from gpam_suite.stats.inside_claim import OF_TOKENS


def plots(results: Path) -> list[Plot]:
    """Of whatever JSON is there, in a fixed order."""
    found = []
    if hulls := store.read(store.path_of(results, "hulls")):
        found += [_hulls(hulls), _output_space(hulls)]
    if depth := store.read(store.path_of(results, "depth")):
        found.append(_depth(depth))
    return found


# --------------------------------------------------------------------------------------------------------------- hulls


def _polygon(axes: Axes, corners: Any, **style: Any) -> None:
    closed = np.array([*corners, corners[0]])
    axes.plot(*closed.T, **style)


def _plane(axes: Axes, values: Any, label: str | None = None) -> None:
    """The axes, and the three values with their convex hull."""
    axes.set_aspect("equal")
    axes.set_xlabel("First coordinate")
    axes.axhline(0, color="#888888", linewidth=0.6)
    axes.axvline(0, color="#888888", linewidth=0.6)
    axes.fill(*np.array(values).T, color=GREY, linewidth=0, zorder=0.8)
    axes.plot(*np.array(values).T, linestyle="none", marker="o", color="#000000", label=label)
    for number, (x, y) in enumerate(values, start=1):
        axes.annotate(f"$v_{number}$", (x, y), xytext=(3, 3), textcoords="offset points")


def _hulls(found: dict[str, Any]) -> Plot:
    def paint(figure: Figure) -> None:
        panels = figure.subplots(1, len(found["hulls"]), sharex=True, sharey=True)
        for index, (axes, entry) in enumerate(zip(panels, found["hulls"], strict=True)):
            _plane(axes, found["values"])
            _polygon(axes, entry["corners"], color=COLOURS[index], linewidth=1.6)
            pair = rf"$\lambda_+ = \lambda_- = {entry['lambda_pos']:g}$"
            name = "softmax" if entry["lambda_neg"] == 0 else f"daGPAM, {pair}"
            axes.set_title(f"{name}\narea × {entry['area_ratio']:.3g}")
        panels[0].set_ylabel("Second coordinate")

    caption = (
        "The paper's figure 1: all outputs that attention to three values can give (outlined), from any scores. "
        "Softmax: their convex hull (grey). daGPAM with equal lambdas: a part of their affine hull, here the plane, "
        "larger by the factor in the panel. Data: three points. Model: the formula, one head. Seeds: none. Made by "
        f"`{ANALYSE} parts=[hulls]`."
    )
    return Plot("hulls", caption, 2.5, paint)


def _output_space(found: dict[str, Any]) -> Plot:
    def paint(figure: Figure) -> None:
        axes = figure.add_subplot()
        _plane(axes, found["values"], "values and convex hull")
        axes.set_ylabel("Second coordinate")
        for index, entry in enumerate(found["output_space"], start=1):
            negative = entry["lambda_neg"]
            style = {**look(index), "marker": None}
            label = rf"$\lambda_-$ = {negative:g}: rows sum to {2 - negative:g}, area × {entry['area_ratio']:.3g}"
            _polygon(axes, entry["corners"], label=label, **style)
        axes.set_title(r"$\lambda_+$ = 1")
        legend_below(figure)

    caption = (
        "The paper's figure 3: all outputs of daGPAM at lambda+ = 1 (outlined) as lambda- varies. Only at lambda- = "
        "1 do rows sum to 1; elsewhere the region also moves away from the values, towards the origin or away from "
        f"it. Data: three points. Model: the formula, one head. Seeds: none. Made by `{ANALYSE} parts=[hulls]`."
    )
    return Plot("output-space", caption, 4.2, paint)


# --------------------------------------------------------------------------------------------------------------- depth

_SHOWN = ("residual", "cosine", "effective_rank")
_NOTHING = 1e-6  # a relative residual that is none
_NETWORKS = {"attention": "Attention alone, no skip, no mask", "transformer": "Transformer, pre-LN, causal"}


def _depth(found: dict[str, Any]) -> Plot:
    layers = found["layers"]

    def paint(figure: Figure) -> None:
        panels = figure.subplots(len(_SHOWN), 2, sharex=True)
        for column, (network, title) in enumerate(_NETWORKS.items()):
            panels[0, column].set_title(title)
            panels[-1, column].set_xlabel("Layers")
            for axes, name in zip(panels[:, column], _SHOWN, strict=True):
                for index, entry in enumerate(found["networks"][network]):
                    band(axes, layers, [seed[name] for seed in entry["seeds"]], look(index), _contender(entry))
                axes.set_xscale("symlog", linthresh=1)
                axes.set_xticks(layers, [str(layer) for layer in layers])
                axes.minorticks_off()
                axes.set_ylabel(OF_TOKENS[name])
        panels[0, 0].set_yscale("log")
        panels[0, 0].set_ylim(_NOTHING, 2)
        panels[0, 1].set_ylim(0, 1)
        for axes in panels[1]:
            axes.set_ylim(0, 1.03)
        legend_below(figure)

    caption = (
        "The paper's figure 5: rank collapse at initialisation by depth and lambda+, at lambda- = "
        f"{found['lambda_neg']:g} (rows sum to 1 + lambda+ - lambda-): relative residual (0: all tokens equal; on the "
        f"left in logarithms, and below {_NOTHING:g} not drawn), cosine similarity (1: all point the same way), "
        f"effective rank; mean (line) and range (band) over seeds. Data: {found['dataset_label']}, one text of "
        f"{found['tokens']} tokens. Model: width {found['width']}, of {found['experiment']}. Seeds: "
        f"{listed(found['seeds'])}. Made by `{ANALYSE} parts=[depth]`."
    )
    return Plot("depth", caption, 6.0, paint)


def _contender(entry: dict[str, Any]) -> str:
    return entry["label"] if "lambda_pos" not in entry else rf"{entry['label']}, $\lambda_+$ = {entry['lambda_pos']:g}"
