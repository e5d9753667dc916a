"""From the records of an experiment to the rows of its table; refuses what cannot stand in one table."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.tasks import LM, TASKS
from gpam_suite.records.folder import Record, folders_of_runs, moment, read_each
from gpam_suite.records.metrics import turned
from gpam_suite.records.settings import names_a_row, table_settings
from gpam_suite.stats.bootstrap import Bootstrap, Resampled, hierarchical_bootstrap, paired_bootstrap, resample
from gpam_suite.stats.over_seeds import (
    ENOUGH_SEEDS,
    Difference,
    Summary,
    difference,
    holm,
    shared,
    summarise,
)

BASELINE = "softmax"
FIXED, TRAINABLE = "dagpam", "dagpam_trainable"
DEFAULT_OPTIONS = "default"
LAMBDA_LABELS = {"lambda_pos": "lambda+", "lambda_neg": "lambda-"}
OPTION_LABELS = {"query_neg_init=identity": "W_Q^- from I", "query_neg_init=xavier": "W_Q^- random"}
_LABELS = {"softmax, trained longer": "softmax"}
"""Labels of records that say more than is known: which update is scored is told beside the table."""
_ATTENTION = re.compile(r"\b(attention|control)=")
_LAMBDA = re.compile(rf"\b({'|'.join(LAMBDA_LABELS)})=")


@dataclass(frozen=True, eq=False)
class Row:
    """All seeds of one model with one set of options. ``finished`` and ``lost`` (failed or diverged) go by seed."""

    model: str
    label: str
    overrides_label: str
    options: dict[str, Any]
    finished: tuple[Record, ...]
    lost: tuple[Record, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Model and options: what tells the rows of a table apart."""
        return self.model, self.overrides_label

    @property
    def has_default_options(self) -> bool:
        """Whether its options are those of its file in ``configs/model/``."""
        return self.overrides_label == DEFAULT_OPTIONS

    @property
    def arm(self) -> str:
        """What plans and ``configs/claims.yaml`` call it: the model, and the options that are not its file's."""
        return self.model if self.has_default_options else f"{self.model} ({self.overrides_label})"

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(sorted(self.finished + self.lost, key=lambda record: record["seed"]))

    @property
    def seeds(self) -> list[int]:
        """Seeds that finished."""
        return [record["seed"] for record in self.finished]

    def by_seed(self, read: Callable[[Record], float | None]) -> dict[int, float]:
        """What ``read`` finds in the finished runs, where it finds something."""
        return {record["seed"]: value for record in self.finished if (value := read(record)) is not None}

    def values(self, metric: str) -> dict[int, float]:
        """Seed to number, for the finished seeds that have it."""
        return self.by_seed(lambda record: record["metrics"].get(metric))

    def summary(self, metric: str) -> Summary:
        return summarise(list(self.values(metric).values()))

    def mean(self, *path: str) -> float | None:
        """Mean over the finished seeds of a number in the record, e.g. ``mean("memory", "peak_bytes")``."""
        return summarise(list(self.by_seed(lambda record: record.at(*path)).values())).mean

    def ratio(self, other: "Row", *path: str) -> float | None:
        """:meth:`mean` over that of ``other``; None where either is unknown."""
        own, base = self.mean(*path), other.mean(*path)
        return own / base if own is not None and base else None

    @property
    def machine(self) -> set[str]:
        """What the finished seeds ran on; speed and memory compare only where it is one and the same. (Kernels leave
        some kilobytes more or less of the same memory: it is counted in GiB.)"""

        def told(record: Record) -> dict[str, Any]:
            hardware = dict(record["hardware"])
            if memory := hardware.get("memory_bytes"):
                hardware["memory_bytes"] = round(memory / 2**30)
            return {"hardware": hardware, "gpu": record["gpu"], "world_size": record["world_size"]}

        return {_text(told(record)) for record in self.finished}

    @cached_property
    def resampled(self) -> list[Resampled]:
        """Every finished seed on resampled test sets; none when one of them has no scores to resample."""
        found = [resample(record) for record in self.finished]
        return [] if None in found else found


@dataclass(frozen=True, eq=False)
class Aggregate:
    """An experiment ready for its table: ``rows`` with the baseline (if it was run) first."""

    experiment: str
    task: str
    rows: tuple[Row, ...]
    baseline: Row | None
    usual: Mapping[str, str] = field(default_factory=dict)
    """What the settings that name rows are where a row does not say."""
    untested: frozenset[tuple[str, str]] = frozenset()
    """Keys of rows that are compared with nothing yet, as a plan has more seeds of them."""

    @property
    def metric(self) -> str:
        """The headline metric."""
        return TASKS[self.task].headline

    @property
    def unit(self) -> str | None:
        """Of text, what perplexity is counted by; where BLEU is not of sentences, what it is of."""
        return self.reference["protocol"].get("unit")

    @property
    def digits(self) -> int:
        """Decimals of the headline metric: perplexities of characters are small."""
        return 3 if self.task == LM.name and self.unit == "character" else 2

    @property
    def units(self) -> str:
        """What the test set is resampled by, in the plural; what is usual where no run has scores to resample."""
        return f"{next((run.unit for row in self.rows for run in row.resampled), TASKS[self.task].units[0])}s"

    @cached_property
    def records(self) -> list[Record]:
        return [record for row in self.rows for record in row.records]

    @property
    def finished(self) -> list[Record]:
        return [record for row in self.rows for record in row.finished]

    @cached_property
    def reference(self) -> Record:
        """A record to read the shared facts (data set, recipe, protocol) from; a finished one if there is any."""
        return next(iter(self.finished), self.records[0])

    def row_of(self, model: str, seeds: int = ENOUGH_SEEDS) -> Row | None:
        """The model's row with its own options, where ``seeds`` of its seeds finished."""
        rows = (row for row in self.rows if row.model == model and row.has_default_options)
        return next((row for row in rows if len(row.finished) >= seeds), None)

    def goodness(self, row: Row) -> float:
        """The row's mean of the headline metric, turned so that more is better; below all where no seed has one."""
        mean = row.summary(self.metric).mean
        return float("-inf") if mean is None else turned(self.metric, mean)

    def difference(self, row: Row, metric: str | None = None) -> Difference | None:
        """``row`` minus baseline over seeds; None for the baseline itself or where one of them has no number."""
        metric = metric or self.metric
        if not self.is_tested(row):
            return None
        values, baseline = row.values(metric), self.baseline.values(metric)
        return difference(values, baseline) if values and baseline else None

    def test_set(self, row: Row) -> Bootstrap | None:
        """``row`` minus baseline on the test set; None for the baseline or where scores are missing or few."""
        sides = self.both_resampled(row)
        return paired_bootstrap(*sides) if sides else None

    def seeds_and_test_set(self, row: Row) -> Bootstrap | None:
        """``row`` minus baseline with seeds and test set drawn anew; None where scores or seeds are missing or few."""
        sides = self.both_resampled(row)
        return hierarchical_bootstrap(*sides) if sides else None

    def both_resampled(self, row: Row) -> tuple[list[Resampled], ...]:
        """Of ``row`` and the baseline the seeds that are compared, on resampled test sets; nothing where
        :meth:`test_set` has none."""
        if not self.is_tested(row) or not row.resampled or not self.baseline.resampled:
            return ()
        sides = ({run.record["seed"]: run for run in side.resampled} for side in (row, self.baseline))
        return tuple(list(side.values()) for side in shared(*sides))

    def is_tested(self, row: Row) -> bool:
        return self.baseline is not None and row is not self.baseline and row.key not in self.untested

    @cached_property
    def compared(self) -> list[Row]:
        """The rows that have a difference to the baseline; with more than one, p values want a correction."""
        return [row for row in self.rows if self.difference(row)]

    def corrected(self, find: Callable[[Row], Difference | Bootstrap | None]) -> dict[tuple[str, str], float]:
        """Holm's p values of ``find`` (:meth:`difference`, :meth:`test_set`) by the row's key, where there are any; in
        its family is what several seeds were run for, whether or not they finished."""
        tests = {row: (found := find(row)) and found.p_value for row in self.rows if row is not self.baseline}
        return holm({row.key: p for row, p in tests.items() if p is not None or len(row.records) > 1})

    def ratio(self, row: Row, *path: str, same_machine: bool = False) -> float | None:
        """Mean of a number of ``row`` over that of the baseline; None where unknown or not comparable."""
        if self.baseline is None or (same_machine and (row.machine != self.baseline.machine or len(row.machine) != 1)):
            return None
        return row.ratio(self.baseline, *path)


def aggregate(records: list[Record]) -> Aggregate:
    """The rows of one experiment.

    The baseline (softmax, default options where there are several) comes first, the others in the order in which they
    were first started. Models that were trained or sized otherwise than the baseline are rows named after what differs
    (:data:`gpam_suite.records.settings.NAMES_A_ROW`). The order of ``records`` does not matter.

    Raises:
        UsageError: the records are not comparable (another task, data set, checksum, recipe, protocol, or anything else
            of their configurations that names no row; options that differ between seeds), or a seed was run twice.
    """
    records = sorted(records, key=lambda record: (record["model"], record["overrides_label"], record["seed"]))
    settings = {record: table_settings(record) for record in records}
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

    Usual is what most of the baseline's runs have (of all models' where there is no baseline), of as many what was run
    first.
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
    shown = [OPTION_LABELS.get(option, option) for option in others]
    if lambdas:
        shown = [f"{symbol} = {first['options'][name]:g}" for name, symbol in LAMBDA_LABELS.items()] + shown
    label = model_label(first)
    label = f"{label} ({', '.join(shown)})" if shown else label
    label = ", ".join([label, *(_trained_with(name, value) for name, value in changed.items())])
    finished = tuple(record for record in group if record["status"] == "finished")
    lost = tuple(record for record in group if record["status"] != "finished")
    return Row(model, label, options, first["options"], finished, lost)


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
