"""The tables of ``<results>/tuning``: what was tried, and what is best."""

from collections.abc import Collection
from pathlib import Path

from matplotlib.figure import Figure

from gpam_suite.common.formatting import number, plural
from gpam_suite.common.markup import inert, markdown
from gpam_suite.records.folder import read_records
from gpam_suite.report.model_looks import look_of_model
from gpam_suite.report.plotting import Plot, logarithmic, some_panels
from gpam_suite.stats.curves import validation
from gpam_suite.stats.rows import BASELINE
from gpam_suite.stats.tuning import FOLDER, Grid, Setting, best, grids_of, is_complete, tokens_seen

_ALWAYS = ("Learning rate", "Dropout")  # the others are shown where they differ in any table of the recipe
_ACROSS = 2  # panels of the figure


def tuning(results: Path) -> list[str]:
    """The page's section; none where nothing was tuned."""
    if not (found := grids(results)):
        return []
    return [
        "## Tuning\n",
        "Lowest validation perplexity per token during training, one seed each, the same grid for every model; the "
        "best of each model is bold. Test scores play no part, and those of these runs are in no table.\n",
        *found.values(),
    ]


def grids(results: Path) -> dict[tuple[str, str], str]:
    """Label of a data set and recipe to their table, and what is best in it; runs of another length or another place of
    the layer norm, and those of a search for options of a model, have their own."""
    found = {}
    for (label, recipe), lengths in grids_of(read_records(results / FOLDER)).items():
        tables = []
        for length, own in lengths.items():
            said = f", {plural(length.epochs, 'epoch')}" if len(lengths) > 1 else ""
            for norm, of_options in dict.fromkeys(map(_kind, own)):
                every = [one.cells() for grid in lengths.values() for one in grid if bool(one.options) == of_options]
                titles = [title for title in every[0] if title in _ALWAYS or len({cells[title] for cells in every}) > 1]
                alike = {setting: values for setting, values in own.items() if _kind(setting) == (norm, of_options)}
                place = f", {norm}" if len({setting.layer_norm for setting in own}) > 1 else ""
                place += ", options of the model" if of_options else ""
                tables += [f"{inert(label)}, recipe {inert(recipe)}{said}{place}:\n", *_chosen(alike, titles)]
        found[label, recipe] = "\n".join(tables)
    return found


def _kind(setting: Setting) -> tuple[str, bool]:
    """Its place of the layer norm, and whether options were searched: what settings of one table share."""
    return setting.layer_norm, bool(setting.options)


def _chosen(found: Grid, titles: list[str]) -> list[str]:
    """The table of a grid, and what is best in it of each model of which more than one setting was tried."""
    models = list(dict.fromkeys(model for values in found.values() for model in values))
    chosen = {model: best(found, model) for model in models if sum(model in values for values in found.values()) > 1}
    rows = []
    for setting, values in found.items():
        cells = ["lost" if values.get(model, 0) is None else number(values.get(model)) for model in models]
        is_best = [chosen.get(model) == setting for model in models]
        cells = [f"**{cell}**" if bold else cell for cell, bold in zip(cells, is_best, strict=True)]
        rows.append([*(setting.cells()[title] for title in titles), *cells])
    said = []
    for model, setting in chosen.items():
        name = setting and ", ".join(f"{title.lower()} {setting.cells()[title]}" for title in titles)
        missing = "every run was lost" if is_complete(found, model) else "the grid is not complete"
        said.append(f"{inert(model)}: {name or missing}")
    table = [markdown([*titles, *models], rows)]
    return [*table, f"Best of {'; '.join(said)}.\n"] if said else table


def search_curves(results: Path, without: Collection[str]) -> Plot | None:
    """Validation over the search for a recipe, softmax alone, a panel a data set; not of the recipes ``without``."""
    panels: dict[str, list[tuple[list[float], list[float]]]] = {}
    for record in read_records(Path(results) / FOLDER):
        chosen = record["model"] == BASELINE and record["status"] == "finished" and record["recipe"] not in without
        if chosen and (points := sorted(validation(record).items())):
            tokens = [tokens_seen(record, update) / 1e6 for update, _ in points]
            panels.setdefault(record["dataset_label"], []).append((tokens, [value for _, value in points]))
    panels = {label: runs for label, runs in panels.items() if len(runs) > 1}
    if not panels:
        return None

    across = min(_ACROSS, len(panels))
    down = -(-len(panels) // across)

    def paint(figure: Figure) -> None:
        grid = some_panels(figure, len(panels), down, across)
        for axes, (label, runs) in zip(grid, panels.items(), strict=True):
            for tokens, values in runs:
                best = min(values) == min(min(others) for length, others in runs if length[-1] == tokens[-1])
                axes.plot(tokens, values, **(look_of_model(BASELINE) | {"alpha": 1.0 if best else 0.3, "marker": None}))
                if best:
                    axes.annotate(
                        number(min(values)), (tokens[-1], values[-1]), (4, 4), textcoords="offset points", fontsize=8
                    )
            axes.margins(x=0.15)
            logarithmic(axes.yaxis)
            axes.set_title(label)
            axes.set_xlabel("Millions of tokens trained on")
            axes.set_ylabel("Validation perplexity (log scale)")

    what = (
        "Validation perplexity per token during the search for a recipe: softmax alone, a line a setting, one seed "
        "each, where several were tried. Of those that are trained as long, the one that comes lowest is drawn full, "
        "with its lowest number. The tables below have the settings."
    )
    return Plot("search", what, 2.8 * down, paint)
