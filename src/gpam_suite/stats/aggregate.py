"""From the records of an experiment to the rows of its table; refuses what cannot stand in one table."""

import json
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.records.folder import Record, folders_of_runs, moment, read_each
from gpam_suite.records.settings import names_a_row, table_settings
from gpam_suite.stats.rows import BASELINE, DEFAULT_OPTIONS, Aggregate, Row

FIXED, TRAINABLE = "dagpam", "dagpam_trainable"
LAMBDA_LABELS = {"lambda_pos": "lambda+", "lambda_neg": "lambda-"}
_OPTION_LABELS = {
    "query_neg_init=identity": "W_Q^- from I",
    "query_neg_init=xavier": "W_Q^- random",
    "dropout_on=combined": "one mask of dropout",
    "negative_in=self": "self attention alone",
    "negative_in=encoder": "encoder's self attention alone",
    "negative_in=decoder": "decoder's self attention alone",
    "negative_in=cross": "cross attention alone",
}
_LABELS = {"softmax, trained longer": "softmax"}
"""Labels of records that say more than is known: which update is scored is told beside the table."""
_ATTENTION = re.compile(r"\b(attention|control)=")
_LAMBDA = re.compile(rf"\b({'|'.join(LAMBDA_LABELS)})=")


def aggregate(records: list[Record]) -> Aggregate:
    """The rows of one experiment.

    The baseline (softmax, default options where there are several) comes first, the others in the order of their
    last starts. Models that were trained or sized otherwise than the baseline are rows named after what differs
    (:data:`gpam_suite.records.settings.NAMES_A_ROW`). The order of ``records`` does not matter.

    Raises:
        UsageError: the records are not comparable (another task, data set, checksum, recipe, protocol, or anything else
            of their configurations that names no row; options that differ between seeds), or a seed was run twice.
    """
    records = sorted(records, key=lambda record: (record["model"], record["overrides_label"], record["seed"]))
    settings = {record: table_settings(record.config) for record in records}
    _refuse_mixed(settings)
    usual, changes = _changes(settings)
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        own = changed_options(record["overrides_label"])
        own += [f"{name}={value}" for name, value in changes[record].items()]
        groups.setdefault((record["model"], ",".join(own) or DEFAULT_OPTIONS), []).append(record)
    for group in groups.values():
        _refuse_repeated(group)
    varied = {model for model, options in groups if _LAMBDA.search(options)}
    rows = [_row(*key, group, key[0] in varied, changes[group[0]]) for key, group in groups.items()]
    rows.sort(key=lambda row: (min(map(_started, row.records)), *row.key))
    softmax = [row for row in rows if row.model == BASELINE and not _ATTENTION.search(row.overrides_label)]
    default = [row for row in softmax if row.has_default_options]
    baseline = next(iter(default or softmax), None)
    ordered = ([baseline] if baseline else []) + [row for row in rows if row is not baseline]
    return Aggregate(records[0]["experiment"], records[0]["task"], tuple(ordered), baseline, usual)


def read_aggregates(results: Path) -> list[Aggregate]:
    """Every experiment below ``results``.

    Raises:
        UsageError: the runs of one do not compare.
    """
    aggregates, left_out = read_comparable(results)
    for name, reason in left_out.items():
        raise UsageError(f"{name}: {reason}")
    return aggregates


def read_comparable(results: Path) -> tuple[list[Aggregate], dict[str, str]]:
    """Every experiment below ``results`` whose runs can stand in one table, language modelling first, then by name; and
    why the others cannot, by the names of their folders."""
    found, left_out = [], {}
    for name, folders in folders_of_runs(results).items():
        try:
            if folders:
                one = aggregate(read_each(folders))
                for row in one.rows:
                    one.test_set(row)  # reads the scores, which may have been changed
                found.append(one)
        except UsageError as error:
            left_out[name] = str(error)
    return sorted(found, key=lambda one: (one.task, one.experiment)), left_out


Settings = dict[Record, dict[str, Any]]
"""Of each record what :func:`gpam_suite.records.settings.table_settings` finds."""


def _changes(settings: Settings) -> tuple[dict[str, str], dict[Record, dict[str, str]]]:
    """The table's usual settings, of those that differ in it, and for each record what is not as usual, by short names.

    Usual is what most of the baseline's runs have (of all models' where there is no baseline), of as many the one
    whose last start was first.
    """
    keys = sorted({key for found in settings.values() for key in found if names_a_row(key)})
    keys = [key for key in keys if len({_text(found.get(key)) for found in settings.values()}) > 1]
    own = {record: _text([found.get(key) for key in keys]) for record, found in settings.items()}
    stock = [r for r in settings if (r["model"], r["overrides_label"]) == (BASELINE, DEFAULT_OPTIONS)]
    count = Counter(own[record] for record in stock or settings)
    usual = settings[min(stock or settings, key=lambda record: (-count[own[record]], _started(record), own[record]))]
    short = {key: key.rpartition(".")[2] for key in keys}
    twice = Counter(short.values())
    names = {key: short[key] if twice[short[key]] == 1 else ".".join(key.split(".")[-2:]) for key in keys}
    changes = {
        record: {
            name: _shown(found.get(key))
            for key, name in names.items()
            if _text(found.get(key)) != _text(usual.get(key))
        }
        for record, found in settings.items()
    }
    return {names[key]: _shown(usual.get(key)) for key in keys}, changes


def changed_options(label: str) -> list[str]:
    """The options in an ``overrides_label``, as ``name=value``; none where all are the model's own."""
    return [] if label == DEFAULT_OPTIONS else label.split(",")


def _shown(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        return _shown(value[0])
    if value is None:
        return "not set"
    return f"{value:g}" if isinstance(value, float) else value if isinstance(value, str) else _text(value)


def _row(model: str, options: str, group: list[Record], lambdas: bool, changed: dict[str, str]) -> Row:
    """The row is called by the options that are not its model's own, by its two ``lambdas`` where the model's rows vary
    them, and by what it was trained with where that is not as usual."""
    first = group[0]
    others = [option for option in changed_options(first["overrides_label"]) if not _LAMBDA.match(option)]
    shown = [_OPTION_LABELS.get(option, option) for option in others]
    if lambdas:
        own = first["options"]  # a model's file may leave one out
        shown = [f"{symbol} = {own[name]:g}" for name, symbol in LAMBDA_LABELS.items() if name in own] + shown
    label = model_label(first)
    label = f"{label} ({', '.join(shown)})" if shown else label
    label = ", ".join([label, *(_trained_with(name, value) for name, value in changed.items())])
    finished = tuple(record for record in group if record["status"] == "finished")
    lost = tuple(record for record in group if record["status"] != "finished")
    return Row(model, label, options, first["options"], finished, lost, changed)


def model_label(record: Record) -> str:
    """What tables call the record's model."""
    return _LABELS.get(record["model_label"], record["model_label"])


def _trained_with(name: str, value: str) -> str:
    return f"schedule of {int(value):,} updates" if name == "max_update" and value.isdecimal() else f"{name} {value}"


def _started(record: Record) -> float:
    return moment(record["started"]).timestamp()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _refuse_mixed(settings: Settings) -> None:
    """Refuse records whose numbers do not compare; a lost run has no number, so its protocol may be unknown."""
    records = list(settings)
    finished = [record for record in records if record["status"] == "finished"]
    for name in ("experiment", "task", "dataset", "recipe"):
        _refuse_unequal(records, name, lambda record, name=name: record[name])
    for key in sorted({key for found in settings.values() for key in found if not names_a_row(key)}):
        _refuse_unequal(records, key, lambda record, key=key: settings[record].get(key))
    for key in dict.fromkeys(key for record in finished for key in record.scored_by):
        _refuse_unequal(finished, key, lambda record, key=key: record.scored_by.get(key))


def _refuse_unequal(records: list[Record], what: str, read: Callable[[Record], Any]) -> None:
    if len({_text(read(record)) for record in records}) < 2:
        return
    # The rarer value is the likelier stray: name one of its runs against one of the majority.
    (common, _), *_ = Counter(_text(read(record)) for record in records).most_common()
    one = next(record for record in records if _text(read(record)) == common)
    other = next(record for record in records if _text(read(record)) != common)
    raise UsageError(
        f"Not one table: {what} is {_text(read(one))} in {one.folder} but {_text(read(other))} in {other.folder}. "
        "Run them under one setting, or give one of them an experiment name of its own."
    )


def _refuse_repeated(group: list[Record]) -> None:
    for one, other in pairwise(group):  # in the order of the seeds
        if one["seed"] == other["seed"]:
            raise UsageError(
                f"Seed {one['seed']} of {one['model']} ({one['overrides_label']}) was run twice, with configuration "
                f"{one['config_hash']} in {one.folder} and {other['config_hash']} in {other.folder}. "
                "Delete the one that is out of date."
            )
        options = [
            {"label": record["model_label"], **record["options"], **record.config.get("model", {})}
            for record in (one, other)
        ]
        if options[0] != options[1]:
            keys = sorted(key for key in {*options[0], *options[1]} if options[0].get(key) != options[1].get(key))
            differing = ", ".join(f"{key} ({options[0].get(key)} and {options[1].get(key)})" for key in keys)
            raise UsageError(
                f"{one.folder} and {other.folder} are to be seeds of one model but their options differ in "
                f"{differing}: run both with the same options, or delete the one that is out of date."
            )
