"""Figures of a claim's cross attention: by length of the source, and on sentences with names and numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from gpam_suite.report.model_looks import look_of_model
from gpam_suite.report.plotting import Plot, band, legend_below
from gpam_suite.report.provenance import FROM_RECORDS
from gpam_suite.stats.rows import Aggregate, Row

_GROUPS = 5  # of sentences, by length of the source
_FULL_COLOUR = 0.5  # attention weights beyond it have the same colour


def by_length(aggregate: Aggregate, row: Row, analyses: Mapping[Path, Any], name: str) -> Plot | None:
    """Share of negative weight and sharpness of softmax's cross attention and of ``row``'s, by length of the source.
    None where a run of either has no such numbers."""
    looked = _looked(aggregate, row, analyses)
    if not looked:
        return None
    lengths = np.array([pair["tokens"] for pair in next(iter(looked[row].values()))["pairs"]])
    groups = np.array_split(lengths.argsort(kind="stable"), min(_GROUPS, len(lengths)))

    def paint(figure: Figure) -> None:
        grid = figure.subplots(1, 2)
        titles = {"negative": "Share of negative weight", "sharpness": "Sharpness"}
        for axes, (measure, title) in zip(grid, titles.items(), strict=True):
            for one, own in looked.items():
                seeds = np.array([[np.mean(pair[measure]) for pair in found["pairs"]] for found in own.values()])
                shown = np.transpose([seeds[:, group].mean(1) for group in groups]).tolist()
                band(axes, [lengths[group].mean() for group in groups], shown, look_of_model(one.model), one.label)
            axes.set_title(title)
            axes.set_xlabel("Tokens of the source")
        legend_below(figure)

    what = (
        f"Cross attention on {len(lengths)} pairs of the test set, in {len(groups)} groups by length of the source, "
        "means over layers and heads: share of negative weight, and sharpness (the largest weight's share of a row, "
        f"whatever its sign); mean and range over seeds. {FROM_RECORDS}"
    )
    return Plot(name, what, 2.9, paint)


def sentences(aggregate: Aggregate, row: Row, analyses: Mapping[Path, Any], name: str) -> Plot | None:
    """The cross attention of softmax and of ``row``, the first seed of both, on sentences with names and numbers. Means
    over heads are of positive and of negative weights apart, as those of several heads would cancel."""
    looked = _looked(aggregate, row, analyses)
    both = set.intersection(*map(set, looked.values())) if looked else ()
    first = {one: own[min(both)]["sentences"] for one, own in looked.items()} if both else {}
    if not first or not all(first.values()):
        return None
    columns: list[tuple[str, list[tuple[Any, np.ndarray]]]] = []  # a title; words and weights of each sentence
    for one, own in first.items():
        words, maps = [sentence["words"] for sentence in own], [np.array(sentence["weights"]) for sentence in own]
        parts = {"": (-np.inf, np.inf)}
        if any((heads < 0).any() for heads in maps):
            parts = {": positive": (0, np.inf), ": negative": (-np.inf, 0)}
        for part, bounds in parts.items():
            means = [heads.clip(*bounds).mean(0) for heads in maps]
            columns.append((one.label + part, list(zip(words, means, strict=True))))
    count = len(first[row])

    def paint(figure: Figure) -> None:
        grid = figure.subplots(count, len(columns), squeeze=False)
        for column, (title, shown) in zip(grid.T, columns, strict=True):
            for axes, (words, weights) in zip(column, shown, strict=True):
                image = _weights(axes, words, weights)
            column[0].set_title(title, fontsize=8)
        figure.colorbar(image, ax=list(grid.flat), label="Attention weight", shrink=0.6, extend="both")

    what = (
        f"Cross attention of the last layer, seed {min(both)}, on sentences of our own, with names and numbers to "
        "copy: means over heads, of positive and of negative weights apart. Rows: the word to write; columns: the "
        f"source. Violet is negative, white zero, orange positive; beyond {_FULL_COLOUR:g} the colour stays the "
        f"same. Softmax's rows sum to 1, a larger sum looks sharper. {FROM_RECORDS}"
    )
    return Plot(name, what, 0.4 + 1.8 * count, paint)


def _weights(axes: Axes, words: Mapping[str, list[str]], weights: np.ndarray) -> AxesImage:
    """Attention weights ``[target, source]`` as a picture beside their words: violet negative, orange positive."""
    full = {"vmin": -_FULL_COLOUR, "vmax": _FULL_COLOUR}
    image = axes.imshow(weights, interpolation="nearest", cmap="PuOr_r", **full)
    axes.grid(visible=False)
    targets, sources = (list(map(_word, words[side])) for side in ("predicted", "encoder"))
    axes.set_xticks(range(len(sources)), sources, rotation=90)
    axes.set_yticks(range(len(targets)), targets)
    axes.tick_params(length=0, pad=1, labelsize=4.5)
    return image


def _word(word: str) -> str:
    return (word if len(word) <= 9 else f"{word[:8]}…").replace("$", r"\$")


def _looked(aggregate: Aggregate, row: Row, analyses: Mapping[Path, Any]) -> dict[Row, dict[int, Any]]:
    """Of both rows seed to what was seen of its cross attention; empty where a seed lacks it."""
    found = {
        one: {record["seed"]: analyses.get(record.folder, {}).get("alignment") for record in one.finished}
        for one in (aggregate.baseline, row)
    }
    return found if all(all(own.values()) for own in found.values()) else {}
