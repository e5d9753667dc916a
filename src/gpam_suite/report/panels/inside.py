"""The figure of what happens inside the trained models of a claim: by layer, and over training."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record
from gpam_suite.records.history_rows import GRADIENT, of_split
from gpam_suite.records.lines import read_history
from gpam_suite.report.model_looks import look_of_model
from gpam_suite.report.panels.runs import in_order, of_kind
from gpam_suite.report.plotting import BASELINE_DASH, COLOURS, Plot, band, legend_below, logarithmic
from gpam_suite.report.provenance import FROM_RECORDS
from gpam_suite.stats.rows import Aggregate, Row

_THIN = {"linewidth": 0.7, "alpha": 0.8}
_MODULES = "Attention module, first to last"
_LETTERS = {"encoder": "e", "decoder": "d", "cross": "x"}
Seeds = Sequence[Sequence[float]]


def inside_models(aggregate: Aggregate, row: Row, analyses: Mapping[Path, Any], name: str) -> Plot | None:
    """Of softmax and ``row``, whose lambdas are learned: lambdas, sums of rows, negative weight, collapse, gradients.

    None where a run of either was not looked into (``analyses``, by the folder of a run).
    """
    rows, parallel = (aggregate.baseline, row), TASKS[aggregate.task].parallel
    if not all(record.folder in analyses for one in rows for record in one.finished):
        return None
    looked = {one: [analyses[record.folder] for record in one.finished] for one in rows}

    def paint(figure: Figure) -> None:
        grid = figure.subplots(3, 2)
        (lambdas, sums), (negative, residual), (by_module, over_training) = grid
        learned = [record["learned_scalars"] for record in row.finished]
        pos, neg = ([of_kind(own, kind) for own in learned] for kind in ("lambda_pos", "lambda_neg"))
        _a_line_a_seed(lambdas, pos, r"$\lambda_+$", COLOURS[5])
        _a_line_a_seed(lambdas, neg, r"$\lambda_-$", COLOURS[4])
        total = [[1 + plus - minus for plus, minus in zip(*both, strict=True)] for both in zip(pos, neg, strict=True)]
        _a_line_a_seed(sums, total, "", look_of_model(row.model)["color"])
        for axes, level in ((lambdas, 0), (sums, 1)):
            axes.axhline(level, color="#000000", linestyle=BASELINE_DASH, linewidth=0.8)
        for one, found in looked.items():
            style = {**look_of_model(one.model), "marker": None}
            if one is row:
                modules = [in_order(analysis["modules"]) for analysis in found]
                masses = [[fmean(module["negative_mass"]) for module in own] for own in modules]
                _band(negative, masses, one, style, first=1)
            first = 0
            for stack in found[0]["streams"]:
                behind = [analysis["streams"][stack]["residual"] for analysis in found]
                _band(residual, behind, one, style, first)
                first += len(behind[0])
            medians = [of_kind(record["gradient_norms"], "query") for record in one.finished]
            _band(by_module, medians, one, style, first=1)
            updates, norms = _over_training(one.finished)
            band(over_training, updates, norms, style, one.label)
        for axes in (by_module, over_training):
            logarithmic(axes.yaxis)
        titles = ("Learned lambdas", "Sum of a row of weights", "Share of negative weight", "Relative residual")
        for axes, title in zip(
            grid.flat,
            (*titles, "Query gradient by module (log scale)", "Query gradient over training (log scale)"),
            strict=True,
        ):
            axes.set_title(title)
            axes.set_xlabel(_MODULES)
            axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        residual.set_xlabel("Layer (0: the embeddings)")
        over_training.set_xlabel("Updates")
        over_training.xaxis.set_major_locator(ticker.MaxNLocator(4, integer=True))
        if parallel:
            _name_places((lambdas, sums, negative, by_module), residual, looked[row][0])
        legend_below(figure)

    what = (
        f"Inside the trained models, {aggregate.baseline.label} and {row.label}. Lambdas at the end of training and "
        "the sums of rows that they make (1 + lambda+ - lambda-; dashed: none, and softmax's 1): a line a seed. Share "
        "of negative weight, relative residual behind each layer (it falls as tokens become alike: rank collapse) and "
        "norms of the loss' gradient in the query projections (by module the median over training, over training the "
        "mean of the modules): mean and range over seeds. "
    )
    if parallel:
        what += (
            "Modules by layer: of the encoder (e), the decoder's own (d), cross attention (x). Layers: of each stack, "
            "0 is the embeddings. "
        )
    what += FROM_RECORDS
    return Plot(name, what, 6.6, paint)


def _name_places(by_module: Iterable[Axes], by_layer: Axes, analysis: Mapping[str, Any]) -> None:
    """Letters of the stacks at the modules and layers of a model that has several."""
    modules = [f"{_LETTERS[module['role']]}{module['layer'] + 1}" for module in in_order(analysis["modules"])]
    for axes in by_module:
        axes.set_xticks(range(1, 1 + len(modules)), modules)
    behind = {_LETTERS[stack]: len(own["residual"]) for stack, own in analysis["streams"].items()}
    layers = [f"{letter}{layer}" for letter, count in behind.items() for layer in range(count)]
    by_layer.set_xticks(range(len(layers)), layers)


def _over_training(records: Iterable[Record]) -> tuple[list[int], Seeds]:
    """Updates that all seeds have, and the norms there, means over modules."""
    histories = [of_split(read_history(record.folder), GRADIENT) for record in records]
    queries = [[of_module for name, of_module in own.items() if name.startswith("query/")] for own in histories]
    updates = sorted(set.intersection(*(set(of_module) for own in queries for of_module in own)))
    return updates, [[fmean(of_module[update] for of_module in own) for update in updates] for own in queries]


def _a_line_a_seed(axes: Axes, seeds: Seeds, label: str, colour: str) -> None:
    for index, values in enumerate(seeds):
        axes.plot(range(1, 1 + len(values)), values, color=colour, label="" if index else label, **_THIN)


def _band(axes: Axes, seeds: Seeds, row: Row, style: dict[str, Any], first: int) -> None:
    band(axes, range(first, first + len(seeds[0])), seeds, style, row.label)
