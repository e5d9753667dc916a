"""``<results>/tuning``: the grid of learning rate and dropout from which a recipe is chosen, by validation alone."""

from pathlib import Path

from gpam_suite.common.formatting import number
from gpam_suite.common.markup import markdown
from gpam_suite.records.folder import Record, read_records
from gpam_suite.records.settings import all_settings
from gpam_suite.stats.aggregate import BASELINE
from gpam_suite.stats.curves import validation

FOLDER = "tuning"
_QUANTITY = "token_perplexity"
_LR, _DROPOUT = "fairseq.optimization.lr", "fairseq.model.dropout"
Setting = tuple[float, float]


def grid(records: list[Record]) -> dict[Setting, dict[str, float | None]]:
    """(learning rate, dropout) to model's label to the lowest validation perplexity per token of its training; None for
    a run that did not finish."""
    found: dict[Setting, dict[str, float | None]] = {}
    for record in records:
        settings = all_settings(record)
        setting = (settings[_LR][0], settings[_DROPOUT])
        finished = validation(record, _QUANTITY).values() if record["status"] == "finished" else ()
        found.setdefault(setting, {})[record["model_label"]] = min(finished, default=None)
    return dict(sorted(found.items()))


def best(found: dict[Setting, dict[str, float | None]], model: str) -> Setting | None:
    """The setting with the model's lowest validation perplexity; None until the model was run in all of them."""
    if not all(model in values for values in found.values()):
        return None
    known = {setting: values[model] for setting, values in found.items() if values[model] is not None}
    return min(known, key=lambda setting: known[setting]) if known else None


def tuning(results: Path) -> list[str]:
    """The page's section; none where nothing was tuned."""
    if not (found := grids(results)):
        return []
    return [
        "## Tuning\n",
        "Lowest validation perplexity per token during training, one seed each, the same grid for every model; the "
        "best of each model is bold. Test scores play no part, and those of these runs are in no table.\n",
        *found,
    ]


def grids(results: Path) -> list[str]:
    """A table for each recipe, and what is best in it."""
    by_recipe: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(read_records(Path(results) / FOLDER), key=lambda record: record["model"] != BASELINE):
        by_recipe.setdefault((record["dataset_label"], record["recipe"]), []).append(record)
    parts = []
    for (label, recipe), records in sorted(by_recipe.items()):
        parts += [f"{label}, recipe {recipe}:\n", *_chosen(grid(records))]
    return parts


def _chosen(found: dict[Setting, dict[str, float | None]]) -> list[str]:
    """The table of a grid, and what is best in it."""
    models = list(dict.fromkeys(model for values in found.values() for model in values))
    chosen = {model: best(found, model) for model in models}
    rows = []
    for setting, values in found.items():
        cells = ["lost" if values.get(model, 0) is None else number(values.get(model)) for model in models]
        cells = [f"**{cell}**" if chosen[model] == setting else cell for model, cell in zip(models, cells, strict=True)]
        rows.append([f"{setting[0]:g}", f"{setting[1]:g}", *cells])
    said = [
        f"{model}: {_name(setting) if setting else 'the grid is not complete'}" for model, setting in chosen.items()
    ]
    return [markdown(["Learning rate", "Dropout", *models], rows), f"Best of {'; '.join(said)}.\n"]


def _name(setting: Setting) -> str:
    return f"learning rate {setting[0]:g}, dropout {setting[1]:g}"
