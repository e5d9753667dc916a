"""``<results>/tuning``: the grid of learning rate, dropout and batch from which a recipe is chosen, by validation
alone."""

from collections.abc import Iterable
from typing import NamedTuple

from gpam.errors import UsageError
from gpam_suite.common.formatting import MISSING
from gpam_suite.config.identity import CONFIG
from gpam_suite.records.folder import Record
from gpam_suite.records.lines import read_history
from gpam_suite.records.settings import all_settings, tokens_per_update
from gpam_suite.stats.curves import validation
from gpam_suite.stats.rows import BASELINE, DEFAULT_OPTIONS

FOLDER = "tuning"
_LR, _DROPOUT = "fairseq.optimization.lr", "fairseq.model.dropout"


class Setting(NamedTuple):
    """A point of the grid."""

    lr: float
    dropout: float
    batch: int | None  # tokens an update
    layer_norm: str
    decay: str  # of the learning rate: fairseq's name of the schedule, of a polynomial one its power
    options: str  # of the model, those that differ between its runs

    def cells(self) -> dict[str, str]:
        """Title to text, but for the layer norm: its places have a table each, and so have runs with options."""
        return {
            "Learning rate": f"{self.lr:g}",
            "Dropout": f"{self.dropout:g}",
            "Tokens an update": f"{self.batch:,}" if self.batch else MISSING,
            "Decay": self.decay,
            "Options": self.options or MISSING,
        }


class Length(NamedTuple):
    """Of training: at most so many tokens (or updates, of configurations that do not say how many tokens one has), in
    so many epochs, of which the last may be a part."""

    tokens: int
    epochs: int


Grid = dict[Setting, dict[str, float | None]]
"""Setting to model's label, with its options, to the lowest validation perplexity per token of its training; None for a
run that did not finish."""


def _setting(record: Record, options: str) -> Setting:
    settings = all_settings(record.config)
    if missing := [key for key in (_LR, _DROPOUT) if key not in settings]:
        raise UsageError(
            f"{record.folder / CONFIG} says no {missing[0]}, which is what was tuned: restore it, or remove the folder"
        )
    before = settings.get("fairseq.model.decoder_normalize_before")
    power, schedule = (settings.get(f"fairseq.lr_scheduler.{key}") for key in ("power", "_name"))
    return Setting(
        lr=settings[_LR][0],
        dropout=settings[_DROPOUT],
        batch=tokens_per_update(settings),
        layer_norm="pre-LN" if before else "post-LN",
        decay=schedule or MISSING if power is None else f"power {power:g}",
        options=options,
    )


def _options(records: list[Record]) -> dict[Record, str]:
    """Of each run the options of its model that differ between the runs of that model; empty where none does."""
    found = {}
    for model in dict.fromkeys(record["model"] for record in records):
        runs = {record: all_settings(record.config) for record in records if record["model"] == model}
        keys = sorted({key for settings in runs.values() for key in settings if key.startswith("model.")})
        differ = [key for key in keys if len({str(settings.get(key)) for settings in runs.values()}) > 1]
        for record, settings in runs.items():
            found[record] = ", ".join(f"{key.removeprefix('model.')}={settings.get(key)}" for key in differ)
    return found


def grid(records: list[Record]) -> Grid:
    """What the runs found, by setting.

    Raises:
        UsageError: two runs of a model differ in none of what a setting has.
    """
    found: Grid = {}
    told = _options(records)
    for record in records:
        options = told[record]
        reached = validation(record).values() if record["status"] == "finished" else ()
        is_told = options or record["overrides_label"] == DEFAULT_OPTIONS
        setting = _setting(record, options)
        model = record["model_label"] if is_told else f"{record['model_label']} {record['overrides_label']}"
        if model in found.setdefault(setting, {}):
            raise UsageError(f"{record.folder} is a second run of {model} at {setting}: wanted one; remove one of them")
        found[setting][model] = min(reached, default=None)
    return dict(sorted(found.items()))


def is_complete(found: Grid, model: str) -> bool:
    """Whether the model was run in every setting, though some run was lost."""
    return all(model in values for values in found.values())


def best(found: Grid, model: str) -> Setting | None:
    """The setting with the model's lowest validation perplexity; None until the model was run in all of them."""
    if not is_complete(found, model):
        return None
    known = {setting: values[model] for setting, values in found.items() if values[model] is not None}
    return min(known, key=lambda setting: known[setting], default=None)


def tokens_seen(record: Record, updates: int) -> int:
    """By a run in so many updates; 0 where its configuration does not say how many an update has."""
    return (tokens_per_update(all_settings(record.config)) or 0) * updates


def _epochs(record: Record) -> int:
    """In which epoch the last validation was; 0 without one."""
    return max((row.get("epoch") or 0 for row in read_history(record.folder, "valid")), default=0)


def grids_of(records: Iterable[Record]) -> dict[tuple[str, str], dict[Length, Grid]]:
    """Label of a data set and recipe to length of training to what was found; softmax comes before the other models."""
    runs: dict[tuple[str, str], dict[int, list[Record]]] = {}
    for record in sorted(records, key=lambda record: record["model"] != BASELINE):
        updates = all_settings(record.config).get("fairseq.optimization.max_update", 0)
        tokens = tokens_seen(record, updates) or updates
        lengths = runs.setdefault((record["dataset_label"], record["recipe"]), {})
        lengths.setdefault(tokens, []).append(record)
    return {
        of: {Length(tokens, max(map(_epochs, records))): grid(records) for tokens, records in sorted(lengths.items())}
        for of, lengths in sorted(runs.items())
    }
