"""``<results>/tuning``: the grid of learning rate, dropout and batch from which a recipe is chosen, by validation
alone."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpam.errors import UsageError
from gpam_suite.common.formatting import MISSING, number
from gpam_suite.common.markup import inert, markdown
from gpam_suite.config.run_paths import CONFIG
from gpam_suite.records.folder import Record, read_records
from gpam_suite.records.settings import all_settings, tokens_per_update
from gpam_suite.stats.aggregate import BASELINE
from gpam_suite.stats.curves import validation

FOLDER = "tuning"
_LR, _DROPOUT = "fairseq.optimization.lr", "fairseq.model.dropout"
_QUANTITY = "token_perplexity"


class Setting(NamedTuple):
    """A point of the grid."""

    lr: float
    dropout: float
    batch: int | None  # tokens an update
    layer_norm: str
    decay: str  # of the learning rate


_COLUMNS: dict[str, Callable[[Setting], str]] = {
    "Learning rate": lambda setting: f"{setting.lr:g}",
    "Dropout": lambda setting: f"{setting.dropout:g}",
    "Tokens an update": lambda setting: f"{setting.batch:,}" if setting.batch else MISSING,
    "Layer norm": lambda setting: setting.layer_norm,
    "Decay": lambda setting: setting.decay,
}
_ALWAYS = ("Learning rate", "Dropout")  # the others are shown where they differ


def _setting(record: Record) -> Setting:
    settings = all_settings(record)
    missing = [key for key in (_LR, _DROPOUT) if key not in settings]
    if missing:
        raise UsageError(
            f"{record.folder / CONFIG} says no {missing[0]}, which is what was tuned: restore it, or remove the folder"
        )
    before = settings.get("fairseq.model.decoder_normalize_before")
    return Setting(
        lr=settings[_LR][0],
        dropout=settings[_DROPOUT],
        batch=tokens_per_update(settings),
        layer_norm="pre-LN" if before else "post-LN",
        decay=_decay(settings),
    )


def _decay(settings: Mapping[str, Any]) -> str:
    """fairseq's name of the schedule; of a polynomial one its power."""
    power = settings.get("fairseq.lr_scheduler.power")
    return settings.get("fairseq.lr_scheduler._name", MISSING) if power is None else f"power {power:g}"


def grid(records: list[Record]) -> dict[Setting, dict[str, float | None]]:
    """Setting to model's label, with its options, to the lowest validation perplexity per token of its training; None
    for a run that did not finish."""
    found: dict[Setting, dict[str, float | None]] = {}
    for record in records:
        finished = validation(record, _QUANTITY).values() if record["status"] == "finished" else ()
        options = "" if record["overrides_label"] == "default" else f" {record['overrides_label']}"
        found.setdefault(_setting(record), {})[f"{record['model_label']}{options}"] = min(finished, default=None)
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
        *found.values(),
    ]


def grids(results: Path) -> dict[tuple[str, str], str]:
    """Label of a data set and recipe to their table, and what is best in it; runs of another length have their own."""
    by_length: dict[tuple[str, str], dict[int, list[Record]]] = {}
    for record in sorted(read_records(Path(results) / FOLDER), key=lambda record: record["model"] != BASELINE):
        lengths = by_length.setdefault((record["dataset_label"], record["recipe"]), {})
        lengths.setdefault(_length(record), []).append(record)
    found = {}
    for (label, recipe), lengths in sorted(by_length.items()):
        tables = []
        for length, records in sorted(lengths.items()):
            said = f", {length / 1e6:.1f} million tokens of training" if len(lengths) > 1 else ""
            tables += [f"{inert(label)}, recipe {inert(recipe)}{said}:\n", *_chosen(grid(records))]
        found[label, recipe] = "\n".join(tables)
    return found


def _length(record: Record) -> int:
    """How many tokens a run was trained on, at most; 0 where its configuration does not say."""
    settings = all_settings(record)
    return (tokens_per_update(settings) or 0) * settings.get("fairseq.optimization.max_update", 0)


def _chosen(found: dict[Setting, dict[str, float | None]]) -> list[str]:
    """The table of a grid, and what is best in it."""
    models = list(dict.fromkeys(model for values in found.values() for model in values))
    chosen = {model: best(found, model) for model in models}
    columns = {
        title: [text(setting) for setting in found]
        for title, text in _COLUMNS.items()
        if title in _ALWAYS or len({text(setting) for setting in found}) > 1
    }
    rows = []
    for number_of, (setting, values) in enumerate(found.items()):
        cells = ["lost" if values.get(model, 0) is None else number(values.get(model)) for model in models]
        cells = [f"**{cell}**" if chosen[model] == setting else cell for model, cell in zip(models, cells, strict=True)]
        rows.append([*(texts[number_of] for texts in columns.values()), *cells])
    said = [
        f"{inert(model)}: {_name(setting, columns) if setting else 'the grid is not complete'}"
        for model, setting in chosen.items()
        if len(found) == 1 or sum(model in values for values in found.values()) > 1  # else its options were tried
    ]
    return [markdown([*columns, *models], rows), f"Best of {'; '.join(said)}.\n"]


def _name(setting: Setting, columns: Iterable[str]) -> str:
    return ", ".join(f"{title.lower()} {_COLUMNS[title](setting)}" for title in columns)
