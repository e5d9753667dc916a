"""Two runs, or two models with all their seeds, side by side: what differs in configuration, environment and result.

Differences are B minus A, and wins are B's. Over seeds they are tested by
:func:`gpam_suite.stats.over_seeds.difference`, on the test set by the paired bootstrap, over both by the hierarchical
one (:mod:`gpam_suite.stats.bootstrap`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gpam.errors import UsageError, did_you_mean
from gpam_suite.common import formatting
from gpam_suite.common.formatting import MISSING, listed
from gpam_suite.common.sections import Section, Table
from gpam_suite.common.tasks import TASKS
from gpam_suite.records import archives
from gpam_suite.records.environment import commit
from gpam_suite.records.folder import RECORD, Record, read_record
from gpam_suite.records.lines import read_scores
from gpam_suite.records.metrics import METRIC_LABEL
from gpam_suite.records.settings import all_settings, table_settings
from gpam_suite.report.provenance import few_seeds
from gpam_suite.report.tables import difference_cell
from gpam_suite.report.unit_differences import where
from gpam_suite.stats.aggregate import aggregate
from gpam_suite.stats.bootstrap import LEAST_UNITS
from gpam_suite.stats.over_seeds import shared
from gpam_suite.stats.rows import Aggregate, Row

_WANTED = (
    "wanted a run's folder (results/local/runs/<experiment>/<model>-<options>/seed<k>-<hash>), or the folder above it "
    "for all its seeds"
)
_COSTS = {
    "Parameters": (("parameters", "total"), False),
    "Training FLOPs per token": (("flops", "train_per_token"), False),
    "Training tokens per second": (("speed", "train_tokens_per_second"), True),
    "Peak memory in bytes": (("memory", "peak_bytes"), True),
}
"""Title, place in the record, and whether it compares on one and the same machine only."""


class Side(NamedTuple):
    """A or B: its folder, the row of its seeds (before one is chosen, a row a setting), the seeds' folders that hold no
    record yet, and the labels of rows that are left out."""

    name: str
    folder: Path
    rows: tuple[Row, ...]
    unended: list[str]
    left_out: tuple[str, ...] = ()

    @property
    def row(self) -> Row:
        (row,) = self.rows
        return row

    @property
    def reference(self) -> Record:
        """A record to read what all seeds share from; a finished one if there is any."""
        return (self.row.finished or self.row.records)[0]


def compare(a: Path, b: Path) -> list[Section]:
    """The sections of a comparison of the runs or groups in the folders ``a`` and ``b``.

    Of a folder with runs of several settings those count that were trained as the other side's.

    Raises:
        UsageError: a folder holds no run, or the two do not compare.
    """
    read = _read("A", a), _read("B", b)
    sides = _chosen(*read), _chosen(*reversed(read))
    if against := _obstacles(*sides):
        raise UsageError(f"A and B do not compare: {'; '.join(against)}. Name two of one protocol and data set.")
    sections = [
        Section("A and B", [line for side in sides for line in _told(side)]),
        Section("Configuration", [_differing("Setting", sides, lambda record: all_settings(record.config))]),
        Section("Environment", [_differing("Fact", sides, _facts)]),
    ]
    a_row, b_row = (replace(side.row, label=f"{side.name} ({side.row.label})") for side in sides)
    reference = sides[1].reference
    table = Aggregate(reference["experiment"], reference["task"], (a_row, b_row), a_row)
    head, numbers = ["Number", "A", "B", "Difference", "95 % over seeds"], _numbers(table)
    sections[0].blocks.append(f"Differences are B minus A.{_of_which_seeds(table)}")
    return [*sections, Section("Result", [Table(head, numbers), *_tests(table), *few_seeds(table)]), *where(table)]


# -------------------------------------------------------------------------------------------------------- the two sides


def _read(name: str, folder: Path) -> Side:
    """The run or group in ``folder``.

    Raises:
        UsageError: no such folder, no run in it, a broken record, or runs that make no table.
    """
    alone = archives.is_file(folder / RECORD)
    ended = [folder] if alone else sorted(path.parent for path in archives.find(folder, f"seed*/{RECORD}"))
    if not ended:
        if inside := _groups(folder):
            raise UsageError(f"{name}: {folder} holds runs of several models, wanted one: {', '.join(inside)}.")
        meant = did_you_mean(folder.name, _groups(folder.parent))
        raise UsageError(f"{name}: {folder} holds no run that has ended (no {RECORD}){meant}; {_WANTED}.")
    unended = [path.name for path in sorted(folder.glob("seed*")) if path.is_dir() and path not in ended]
    return Side(name, folder, aggregate([read_record(path) for path in ended]).rows, unended)


def _chosen(own: Side, other: Side) -> Side:
    """``own`` with one row: of several the one that was trained as a row of ``other``.

    Raises:
        UsageError: there is no such row, or more than one.
    """
    rows = own.rows
    if len(rows) > 1:
        trained = [table_settings(row.records[0].config) for row in other.rows]
        rows = tuple(row for row in rows if table_settings(row.records[0].config) in trained)
    if len(rows) != 1:
        held = "; ".join(f"{row.label} ({row.records[0].folder.name})" for row in own.rows)
        raise UsageError(
            f"{own.name}: the folder holds runs of several settings: {held}; name one of these runs' folders."
        )
    return own._replace(rows=rows, left_out=tuple(row.label for row in own.rows if row not in rows))


def _groups(folder: Path) -> list[str]:
    """The models, with their options, of an experiment's folder or archive."""
    return sorted({path.parts[-3] for path in archives.find(folder, f"*/seed*/{RECORD}")})


def _obstacles(a: Side, b: Side) -> list[str]:
    """Why the numbers of the two do not compare: task, data set, or fields of data and protocol, with both values.

    The recipe may differ: on one test set under one protocol, that is a question a comparison can answer.
    """
    for field in ("task", "dataset"):
        if a.reference[field] != b.reference[field]:
            return [f"{field} is {a.reference[field]} in A but {b.reference[field]} in B"]
    if not (a.row.finished and b.row.finished):  # a lost run has no number, and its protocol may be unknown
        return []
    return [
        f"{key} is {'missing' if one is None else one} in A but {'missing' if other is None else other} in B"
        for key, one, other in a.reference.scored_otherwise(b.reference)
    ]


def _told(side: Side) -> list[str]:
    name, row = side.name, side.row
    seeds = f"{'seed' if len(row.records) == 1 else 'seeds'} {listed(record['seed'] for record in row.records)}"
    lines = [f"{name}: {row.label}, {side.reference['dataset_label']}, {seeds} ({side.folder})"]
    if side.left_out:
        lines.append(f"{name}: those trained as the other side; not {'; '.join(side.left_out)} in the same folder.")
    lines += [f"{name}, seed {lost['seed']}: {lost['status']}: {lost['reason']}" for lost in row.lost]
    return lines + ([f"{name}: {listed(side.unended)} not ended, not in these numbers."] if side.unended else [])


def _facts(record: Record) -> dict[str, Any]:
    """Versions, hardware and commit of a run, by dotted name."""
    facts = {"git commit": commit(record["git"]), "gpu configuration": record["gpu"], "devices": record["world_size"]}
    for group, told in {"versions": record["versions"], "hardware": record.hardware}.items():
        facts |= {f"{group}.{key}": value for key, value in told.items()}
    return {key: value for key, value in facts.items() if value is not None}


def _differing(title: str, sides: tuple[Side, Side], read: Callable[[Record], Mapping[str, Any]]) -> Table | str:
    """The facts that differ between the sides; where seeds of one side differ, all its values."""
    found = [[read(record) for record in side.row.records] for side in sides]
    keys = dict.fromkeys(key for side in found for facts in side for key in facts)
    lines = [(key, *[listed(facts[key] for facts in side if key in facts) for side in found]) for key in keys]
    different = [line for line in lines if line[1] != line[2]]
    return Table([title, "A", "B"], different) if different else "Nothing differs."


# -------------------------------------------------------------------------------------------------------------- result


def _of_which_seeds(table: Aggregate) -> str:
    """Why a difference is not that of the means beside it; nothing where it is."""
    scored = [row.values(table.metric) for row in table.rows]
    compared = [*shared(*scored)]
    if compared == scored:
        return ""
    both = listed(compared[0])
    return f" Means are over all seeds of a side, differences of scores over those that both have: {both}."


def _numbers(table: Aggregate) -> list[list[str]]:
    """Every metric that a finished seed has, the headline one first, and what the runs cost: a line each, of number, A,
    B, difference and its interval over seeds."""
    a, b = table.rows
    alike = _tokens_by(a) == _tokens_by(b)
    lines = []
    for metric in dict.fromkeys([table.metric, *(metric for record in table.finished for metric in record["metrics"])]):
        digits = max(table.digits, 3 if metric.endswith("_loss") else 2)  # a loss is a logarithm: 0.01 is 1 %
        scores = [row.summary(metric) for row in table.rows]
        line = [formatting.plus_minus(score.mean, score.sd, digits) for score in scores]
        if (alike or not _is_by_token(table.task, metric)) and (found := table.difference(b, metric)):
            digits = formatting.enough(found.low, found.high, digits)
            line += [formatting.signed(found.estimate, digits), formatting.interval(found.low, found.high, digits)]
        else:
            line += [MISSING, MISSING]
        lines.append([METRIC_LABEL.get(metric, metric.replace("_", " ").capitalize()), *line])
    for title, (path, same_machine) in _COSTS.items():
        ratio = table.ratio(b, *path, same_machine=same_machine) if alike or "token" not in title else None
        change = MISSING if ratio is None else formatting.percent(ratio - 1)
        lines.append([title, *(formatting.count(row.mean(*path)) for row in table.rows), change, MISSING])
    return lines


def _tokens_by(row: Row) -> set[str]:
    """What cuts the text of its runs into tokens."""
    found = (all_settings(record.config).items() for record in row.records)
    return {f"{key}={value}" for settings in found for key, value in settings if key.startswith("preprocessing.")}


def _is_by_token(task: str, metric: str) -> bool:
    """Whether it compares only where both sides have the same tokens; losses of translations are by token too."""
    return "token" in metric or (TASKS[task].parallel and metric.startswith("valid"))


def _tests(table: Aggregate) -> list[str]:
    """The three tests of the headline number, in words."""
    b, name = table.rows[1], METRIC_LABEL[table.metric]
    over_seeds, test_set = table.difference(b), table.test_set(b)
    if over_seeds is None:
        return [f"No test: a side has no finished seed with {name}."]
    if over_seeds.low is None:
        lines = [f"Over seeds: no test ({over_seeds.method})."]
    else:
        found = f"{name} {difference_cell(over_seeds, table.digits)}, {formatting.p_value(over_seeds.p_value)}"
        lines = [f"Over seeds ({over_seeds.method}): {found}."]
    if test_set is None:
        parts = min(len(read_scores(record.folder)) for record in table.finished)
        why = (
            f"it was scored in {parts} {'part' if parts == 1 else 'parts'}, and drawing wants {LEAST_UNITS} or more"
            if parts
            else "scores of its parts are missing"
        )
        return [*lines, f"On the test set: no test, as {why}."]
    lines.append(
        f"On the test set ({test_set.method}): {difference_cell(test_set, table.digits)}, "
        f"{formatting.p_value(test_set.p_value)}; for these trained models only."
    )
    if both := table.seeds_and_test_set(b):
        lines.append(f"Over seeds and test set ({both.method}): {difference_cell(both, table.digits)}.")
    return lines
