"""Two runs, or two models with all their seeds, side by side: what differs in configuration, environment and result.

Differences are B minus A, and wins are B's. Over seeds they are tested by
:func:`gpam_suite.stats.over_seeds.difference`, on the test set by the paired bootstrap, over both by the hierarchical
one (:mod:`gpam_suite.stats.bootstrap`).
"""

from collections.abc import Mapping
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common import formatting
from gpam_suite.common.formatting import MISSING, listed, plural
from gpam_suite.common.sections import Section, Table
from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record
from gpam_suite.records.metrics import METRIC_LABEL
from gpam_suite.records.settings import all_settings
from gpam_suite.report.compared import Side, obstacles, read_side, table_of
from gpam_suite.report.provenance import BOTH_DRAWN, ENOUGH_FOR, few_seeds, number_of_seeds
from gpam_suite.report.tables import difference_cell
from gpam_suite.report.unit_differences import where
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.bootstrap import RESAMPLES


def compare(a: str, b: str, *, anyway: bool = False) -> list[Section]:
    """The sections of a comparison of the runs or groups in the folders ``a`` and ``b``.

    Args:
        anyway: show runs of another protocol or data set beside each other, without differences and tests.

    Raises:
        UsageError: a folder holds no run, or the two do not compare and ``anyway`` is not given.
    """
    sides = read_side("A", a), read_side("B", b)
    against = obstacles(*sides)
    if against and not anyway:
        raise UsageError(
            f"A and B do not compare: {'; '.join(against)}. Name two of one protocol and data set, or add --anyway "
            "(make: EXTRA=--anyway) to see both without a test."
        )
    sections = [_opening(*sides, against), _configuration(*sides), _environment(*sides)]
    if against:
        return [*sections, _numbers(*sides)]
    table = table_of(*sides)
    return [*sections, _result(table), *where(table)]


def _opening(a: Side, b: Side, against: list[str]) -> Section:
    section = Section("A and B")
    for name, side in (("A", a), ("B", b)):
        row = side.row
        section.blocks.append(
            f"{name}: {row.label}, {side.reference['dataset_label']}, "
            f"{'seed' if len(row.records) == 1 else 'seeds'} {listed(record['seed'] for record in row.records)} "
            f"({side.folder})"
        )
        section.blocks += [f"{name}, seed {lost['seed']}: {lost['status']}: {lost['reason']}" for lost in row.lost]
        if side.unended:
            section.blocks.append(f"{name}: {listed(side.unended)} not ended, not in these numbers.")
    if against:
        section.blocks.append(f"They do not compare: {'; '.join(against)}. So no difference and no test is given.")
    else:
        section.blocks.append("Differences are B minus A.")
    return section


# --------------------------------------------------------------------------------------- configuration and environment


def _configuration(a: Side, b: Side) -> Section:
    return Section("Configuration", [_differing("Setting", a, b, all_settings)])


def _environment(a: Side, b: Side) -> Section:
    return Section("Environment", [_differing("Fact", a, b, _facts)])


def _facts(record: Record) -> dict[str, Any]:
    """Versions, hardware and commit of a run, by dotted name."""
    git = record["git"] and f"{record['git']['commit'][:10]}{', uncommitted changes' if record['git']['dirty'] else ''}"
    facts = {"git commit": git, "gpu configuration": record["gpu"], "devices": record["world_size"]}
    for group in ("versions", "hardware"):
        facts |= {f"{group}.{key}": value for key, value in record[group].items()}
    return {key: value for key, value in facts.items() if value is not None}


def _differing(title: str, a: Side, b: Side, read: Any) -> Table | str:
    """The facts that differ between the sides; where seeds of one side differ, all its values."""
    found = [[read(record) for record in side.row.records] for side in (a, b)]
    keys = dict.fromkeys(key for side in found for facts in side for key in facts)
    lines = [(key, *[_values(side, key) for side in found]) for key in keys]
    different = [line for line in lines if line[1] != line[2]]
    return Table([title, "A", "B"], different) if different else "Nothing differs."


def _values(side: list[Mapping[str, Any]], key: str) -> str:
    return listed(facts[key] for facts in side if key in facts)


# -------------------------------------------------------------------------------------------------------------- result


def _metrics(rows: tuple[Row, ...]) -> list[str]:
    """Names of the metrics that any finished seed has, the headline one first."""
    finished = [record for row in rows for record in row.finished]
    heads = [TASKS[record["task"]].headline for record in finished]
    return list(dict.fromkeys([*heads, *[metric for record in finished for metric in record["metrics"]]]))


def _label(metric: str) -> str:
    return METRIC_LABEL.get(metric, metric.replace("_", " ").capitalize())


def _mean(row: Row, metric: str, digits: int) -> str:
    summary = row.summary(metric)
    return formatting.plus_minus(summary.mean, summary.sd, digits)


def _digits(metric: str) -> int:
    return 3 if metric.endswith("_loss") else 2  # a loss is a logarithm: 0.01 is 1 % of the perplexity


_COSTS = {
    "Parameters": (("parameters", "total"), False),
    "Training FLOPs per token": (("flops", "train_per_token"), False),
    "Training tokens per second": (("speed", "train_tokens_per_second"), True),
    "Peak memory in bytes": (("memory", "peak_bytes"), True),
}
"""Title, place in the record, and whether it compares on one and the same machine only."""


def _numbers(a: Side, b: Side) -> Section:
    """The numbers of runs that do not compare, beside each other and nothing more."""
    rows = (a.row, b.row)
    lines = [[_label(metric), *[_mean(row, metric, _digits(metric)) for row in rows]] for metric in _metrics(rows)]
    lines += [[title, *[formatting.count(row.mean(*path)) for row in rows]] for title, (path, _) in _COSTS.items()]
    return Section("Result", [Table(["Number", "A", "B"], lines)])


def _result(table: Aggregate) -> Section:
    a, b = table.rows
    lines = []
    for metric in _metrics(table.rows):
        found, digits = table.difference(b, metric), max(_digits(metric), table.digits)
        line = [_label(metric), _mean(a, metric, digits), _mean(b, metric, digits), MISSING, MISSING]
        if found:
            digits = formatting.enough(found.low, found.high, digits)
            line[3:] = formatting.signed(found.estimate, digits), formatting.interval(found.low, found.high, digits)
        lines.append(line)
    for title, (path, same_machine) in _COSTS.items():
        ratio = table.ratio(b, *path, same_machine=same_machine)
        change = MISSING if ratio is None else formatting.percent(ratio - 1)
        lines.append([title, *[formatting.count(row.mean(*path)) for row in table.rows], change, MISSING])
    head = ["Number", "A", "B", "Difference", "95 % over seeds"]
    return Section("Result", [Table(head, lines), *_tests(table), *_warnings(table)])


def _tests(table: Aggregate) -> list[str]:
    """The three tests of the headline number, in words."""
    b, name = table.rows[1], _label(table.metric)
    over_seeds = table.difference(b)
    if over_seeds is None:
        return [f"No test: a side has no finished seed with {name}."]
    if over_seeds.holds_zero is None:
        lines = [f"Over seeds: no test ({over_seeds.method})."]
    else:
        interval = difference_cell(table, over_seeds)
        zero = "holds zero: no difference shown" if over_seeds.holds_zero else "excludes zero"
        lines = [
            f"Over seeds ({over_seeds.method}): {name} {interval}, {formatting.p_value(over_seeds.p_value)}; {zero}."
        ]
    test_set = table.test_set(b)
    if test_set is None:
        return [*lines, f"On the test set: no test, as scores are missing or it has only one of its {table.units}."]
    lines.append(
        f"On the test set (paired bootstrap over {formatting.count(test_set.units)} {table.units}, {RESAMPLES} "
        f"resamples): {difference_cell(table, test_set)}, {formatting.p_value(test_set.p_value)}; for these trained "
        "models only."
    )
    if both := table.seeds_and_test_set(b):
        lines.append(f"Over seeds and test set ({BOTH_DRAWN}): {difference_cell(table, both)}.")
    return lines


def _warnings(table: Aggregate) -> list[str]:
    lines = [f"Warning: {warning}" for warning in few_seeds(table)]
    if count := table.seeds_needed(table.rows[1]):
        lines.append(f"{ENOUGH_FOR}: {number_of_seeds(count)}; here {plural(len(table.rows[1].finished), 'seed')}.")
    return lines
