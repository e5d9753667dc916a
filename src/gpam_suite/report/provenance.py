"""What stands below a table: data, protocol, machines, commands, how the columns are to be read, and warnings."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpam_suite.common import formatting
from gpam_suite.common.formatting import listed
from gpam_suite.common.markup import bullets, code
from gpam_suite.records.environment import commit
from gpam_suite.report.model_looks import APART, SELECTED
from gpam_suite.stats.bootstrap import BOTH_DRAWN
from gpam_suite.stats.over_seeds import ENOUGH_SEEDS, shared
from gpam_suite.stats.rows import Aggregate, Row

PUBLISH = "python scripts/publish.py"
FROM_RECORDS = f"Made by `{PUBLISH}` from the records."
"""How a figure of what is published was made."""
_MOST_NAMED = 4


def caption(
    aggregate: Aggregate,
    what: str,
    rows: Sequence[tuple[Row, Iterable[int]]],
    *,
    then: str = "python scripts/tabulate.py",
    among: int = 0,
) -> str:
    """``what`` is drawn, of which data, models (selected ``among`` so many) and seeds, and the command that drew
    it; those that made the runs stand below the table."""
    models = listed(row.label for row, _ in rows) if len(rows) <= APART else f"the {len(rows)} of the table"
    chosen = f" ({SELECTED})" if len(rows) < among else ""
    return (
        f"{what} Data: {aggregate.reference['dataset_label']}. Models: {models}{chosen}. Seeds: "
        f"{listed(sorted({seed for _, seeds in rows for seed in seeds}))}. Made by `{then}`."
    )


def experiment_notes(aggregate: Aggregate) -> list[str]:
    """The paragraphs below a table: how it is read, what it is made of, and the commands that made the runs, row by
    row, without repeats."""
    commands = dict.fromkeys(record["command"] for record in aggregate.records)
    made = "Made by these commands (one that was stopped lists more models than it trained):\n"
    return [bullets([*_how_to_read(aggregate), *_provenance(aggregate)]), made, code(commands)]


def protocol(aggregate: Aggregate) -> str:
    """How every run of the experiment was scored, in a line."""
    return "Protocol: " + ", ".join(f"{key} {value}" for key, value in aggregate.reference["protocol"].items()) + "."


def _provenance(aggregate: Aggregate) -> list[str]:
    """What a reader must know to judge or repeat the numbers, one line each."""
    records, reference = aggregate.records, aggregate.reference
    updates = sorted({record["updates"] for record in aggregate.finished})
    counts = ", ".join(f"{name} {formatting.count(n)}" for name, n in reference["data"]["counts"].items())
    return [
        f"Data: {reference['dataset_label']} ({counts or 'counts unknown'}), checksum {reference['data']['checksum']}; "
        f"recipe {reference['recipe']}.",
        protocol(aggregate),
        f"Seeds: {listed(sorted({record['seed'] for record in records}))}; "
        f"updates: {listed(map(formatting.count, updates))}.",
        f"Hardware: gpu config {listed(one['gpu'] for one in records)}; {_spread(one.hardware for one in records)}.",
        f"Versions: {_spread(one['versions'] for one in records)}; "
        f"commit {listed(commit(one['git']) for one in records)}.",
    ]


def _spread(told: Iterable[Mapping[str, Any]]) -> str:
    """``name value`` pairs of what each run tells; where runs differ, all values. What none knows is left out."""
    values: dict[str, list[object]] = {}
    for one in told:
        for key, value in sorted(one.items()):
            if value is not None:
                values.setdefault(key, []).append(value)
    return "; ".join(f"{key} {listed(found)}" for key, found in values.items())


def _how_to_read(aggregate: Aggregate) -> list[str]:
    """What the columns mean, and the warnings that belong to this table."""
    lines = ["± is the sample standard deviation over seeds; one seed has none."]
    if aggregate.baseline is None:
        lines.append("Softmax was not run in this experiment, so there are no differences and no ratios.")
    else:
        lines += _on_differences(aggregate, aggregate.baseline)
    if not all(row.has_default_options for row in aggregate.rows):
        lines.append("Options in brackets are not the model's own; those that are not named are (`configs/model/`).")
    if kind := aggregate.reference["protocol"].get("references"):
        lines.append(f"BLEU of {kind} text as it is: comparable only with scores of the same tokens, not of raw text.")
    if aggregate.usual:
        usual = ", ".join(f"{name} {value}" for name, value in aggregate.usual.items())
        lines.append(f"A row whose settings differ from the baseline's is named after them; elsewhere: {usual}.")
    return lines + few_seeds(aggregate)


def _on_differences(aggregate: Aggregate, baseline: Row) -> list[str]:
    lines = []
    if aggregate.compared:
        methods = listed(aggregate.difference(row).method for row in aggregate.compared)
        others = [one.label for one in map(aggregate.baseline_of, aggregate.compared) if one is not baseline]
        trained = f" (of models that were trained as {listed(others)}, to that)" if others else ""
        lines.append(
            f"Differences are to {baseline.label}{trained}; over seeds: {methods}. Ratios are of means over all seeds. "
            "The p values under *Holm* are corrected for the number of rows, all other ones and intervals are not."
        )
    if fewer := [row.label for row in aggregate.compared if _of_fewer_seeds(aggregate, row)]:
        lines.append(
            f"The difference of {listed(fewer)} is over the seeds that both sides have, so it is not that of the means "
            "beside it."
        )
    silent = [row.label for row in aggregate.rows if row.finished and not row.resampled]
    if silent and len(silent) < len(aggregate.rows):
        lines.append(f"No test on the test set of {listed(silent)}: some seed of it has no scores to resample.")
    if drawn := [found.method for row in aggregate.rows if (found := aggregate.test_set(row))]:
        lines.append(
            f"On the test set: {drawn[0]}, for the trained models at hand alone. Over seeds and test set: {BOTH_DRAWN}."
        )
    if waiting := [row.label for row in aggregate.rows if row.key in aggregate.untested and row is not baseline]:
        lines.append(
            f"No difference is shown yet of {listed(waiting)}: the experiment's plan (`configs/claims.yaml`) wants "
            "all seeds of softmax, of its main model and of these first: a look at some would choose when to stop."
        )
    return [
        *lines,
        "Speed and memory are those of these runs, whatever else their machine did, and compared on one and the same "
        "hardware only: no evidence about cost; `make benchmark` compares side by side.",
    ]


def _of_fewer_seeds(aggregate: Aggregate, row: Row) -> bool:
    """Whether a side has seeds that play no part in the difference."""
    sides = [side.values(aggregate.metric) for side in (row, aggregate.baseline_of(row))]
    return [*shared(*sides)] != sides


def few_seeds(aggregate: Aggregate) -> list[str]:
    """A warning where models have too few finished seeds, which names them if they are few; else none."""
    models = [row.label for row in aggregate.rows if 0 < len(row.finished) < ENOUGH_SEEDS]
    if not models:
        return []
    who = listed(models) if len(models) <= _MOST_NAMED else f"{len(models)} of the {len(aggregate.rows)} models"
    return [
        f"Warning: too few seeds to tell a difference from chance ({who}); {ENOUGH_SEEDS} are the least, five are "
        "better."
    ]
