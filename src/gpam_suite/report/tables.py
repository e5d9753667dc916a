"""The table of an experiment, as Markdown, CSV and LaTeX, made from records and nothing else.

The same records give the same bytes: no date of today, no machine's path, a fixed order and fixed resampling seeds, so
that CI can make the tables again and compare.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpam_suite.common import formatting
from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import bullets, inert, latex, markdown
from gpam_suite.common.tasks import RECALL, TASKS
from gpam_suite.records.metrics import LOWER_IS_BETTER, METRIC_LABEL
from gpam_suite.report.provenance import HOW_MADE, command_block, how_to_read, provenance
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.bootstrap import Bootstrap
from gpam_suite.stats.over_seeds import Difference

_LONG_TABLE_ONLY = {"test_chrf", "test_ter", "test_misaligned_pieces"}


@dataclass(frozen=True)
class Column:
    """A column: its title, the cell of a row of finished seeds, and whether a short table keeps it."""

    title: str
    cell: Callable[[Row], str]
    short: bool = True


def metric_title(aggregate: Aggregate) -> str:
    """``Test perplexity per word`` or ``Test BLEU``: the headline metric with its unit, for table heads and axes."""
    unit = aggregate.unit if aggregate.task != RECALL.name else None
    return METRIC_LABEL[aggregate.metric] + (f" per {unit}" if unit else "")


def difference_cell(aggregate: Aggregate, found: Difference | Bootstrap | None) -> str:
    """A difference in the headline metric with its interval; a dash without one."""
    return formatting.estimate(found.estimate, found.low, found.high, aggregate.digits) if found else MISSING


def second_metrics(aggregate: Aggregate) -> list[str]:
    """The metrics beside the headline one that any finished seed has."""
    return [metric for metric in TASKS[aggregate.task].further if any(row.values(metric) for row in aggregate.rows)]


def columns(aggregate: Aggregate) -> list[Column]:
    """The columns of an experiment's table. Differences and ratios are to the baseline row."""
    metric = aggregate.metric

    def arrow(name: str) -> str:
        return "↓" if name in LOWER_IS_BETTER else "↑"

    def value(row: Row, name: str) -> str:
        summary = row.summary(name)
        return formatting.plus_minus(summary.mean, summary.sd, aggregate.digits)

    def over_seeds(row: Row) -> str:
        return difference_cell(aggregate, aggregate.difference(row))

    def on_test_set(row: Row) -> str:
        found = aggregate.test_set(row)
        return f"{difference_cell(aggregate, found)}, {formatting.p_value(found.p_value)}" if found else MISSING

    def extra(row: Row) -> str:
        ratio = aggregate.ratio(row, "parameters", "total")
        return MISSING if ratio is None or row is aggregate.baseline else formatting.percent(ratio - 1)

    def seeds(row: Row) -> str:
        return f"{len(row.finished)} of {len(row.records)}" if row.lost else str(len(row.finished))

    found = [
        Column("Model", lambda row: row.label),
        Column("Seeds", seeds),
        Column(f"{metric_title(aggregate)} {arrow(metric)}", lambda row: value(row, metric)),
    ]
    for second in second_metrics(aggregate):
        title = f"{METRIC_LABEL[second]} {arrow(second)}"
        found.append(Column(title, partial(value, name=second), second not in _LONG_TABLE_ONLY))
    return [
        *found,
        Column("Difference over seeds [95 %]", over_seeds),
        Column("Difference on the test set [95 %]", on_test_set, short=False),
        *_many_comparisons(aggregate),
        Column("Parameters", lambda row: formatting.count(row.mean("parameters", "total")), short=False),
        Column("Extra parameters", extra),
        Column("Training FLOPs ×", lambda row: formatting.number(aggregate.ratio(row, "flops", "train_per_token"))),
        Column(
            "Training speed ×",
            lambda row: formatting.number(aggregate.ratio(row, "speed", "train_tokens_per_second", same_machine=True)),
        ),
        Column(
            "Peak memory ×",
            lambda row: formatting.number(aggregate.ratio(row, "memory", "peak_bytes", same_machine=True)),
        ),
    ]


def _many_comparisons(aggregate: Aggregate) -> list[Column]:
    """What a table of more than one comparison adds: both tests corrected by Holm, and seeds and test set in one."""
    if len(aggregate.compared) < 2:
        return []
    over_seeds, test_set = aggregate.corrected(aggregate.difference), aggregate.corrected(aggregate.test_set)

    def both(row: Row) -> str:
        return difference_cell(aggregate, aggregate.seeds_and_test_set(row))

    return [
        Column("Over seeds, Holm", lambda row: formatting.p_value(over_seeds.get(row.key)), short=False),
        Column("On the test set, Holm", lambda row: formatting.p_value(test_set.get(row.key)), short=False),
        Column("Difference over seeds and test set [95 %]", both, short=False),
    ]


def cells(aggregate: Aggregate, chosen: Sequence[Column]) -> list[list[str]]:
    """The table's text: a row for each model, then one for each of its lost seeds with the reason."""
    table = []
    for row in aggregate.rows:
        table.append([*(column.cell(row) for column in chosen), MISSING])
        table += [
            [f"{row.label}, seed {lost['seed']}", *[MISSING] * (len(chosen) - 1), f"{lost['status']}: {lost['reason']}"]
            for lost in row.lost
        ]
    return table


def header(chosen: Sequence[Column]) -> list[str]:
    """Titles of the columns and of the status column that :func:`cells` appends."""
    return [*(column.title for column in chosen), "Status"]


def short_table(aggregate: Aggregate) -> str:
    """The table of pages, in Markdown: the columns that a short table keeps."""
    chosen = [column for column in columns(aggregate) if column.short]
    return markdown(header(chosen), cells(aggregate, chosen))


def csv_table(aggregate: Aggregate) -> str:
    """:func:`comparisons` with six significant digits, for those who go on computing."""
    return csv_text(six_digits(comparisons(aggregate)))


def six_digits(lines: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """The lines with their numbers as text of six significant digits."""
    return [{name: formatting.exact(value) for name, value in line.items()} for line in lines]


def csv_text(lines: Sequence[dict[str, Any]]) -> str:
    """CSV of ``lines``; its columns are those of all of them, in the order in which they appear."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(dict.fromkeys(name for line in lines for name in line)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return file.getvalue()


def comparisons(aggregate: Aggregate) -> list[dict[str, Any]]:
    """What the statistics say, a line for each model and one for each lost seed; differences are to the baseline."""
    metric, seconds = aggregate.metric, second_metrics(aggregate)
    holm_seeds, holm_test_set = aggregate.corrected(aggregate.difference), aggregate.corrected(aggregate.test_set)
    lines = []
    for row in aggregate.rows:
        over_seeds, test_set, summary = aggregate.difference(row), aggregate.test_set(row), row.summary(metric)
        line: dict[str, float | int | str | None] = {
            "experiment": aggregate.experiment,
            "model": row.model,
            "options": row.overrides_label,
            "label": row.label,
            "status": "finished" if row.finished else "none finished",
            "reason": None,
            "seeds": " ".join(map(str, row.seeds)),
            "seeds_finished": len(row.finished),
            "seeds_lost": len(row.lost),
            "metric": metric,
            "mean": summary.mean,
            "sd": summary.sd,
            "chrf_mean": row.summary("test_chrf").mean,
            "chrf_sd": row.summary("test_chrf").sd,
            "difference": over_seeds and over_seeds.estimate,
            "difference_low": over_seeds and over_seeds.low,
            "difference_high": over_seeds and over_seeds.high,
            "difference_method": over_seeds and over_seeds.method,
            "test_set_difference": test_set and test_set.estimate,
            "test_set_low": test_set and test_set.low,
            "test_set_high": test_set and test_set.high,
            "test_set_p": test_set and test_set.p_value,
            "parameters": row.mean("parameters", "total"),
            "parameters_ratio": aggregate.ratio(row, "parameters", "total"),
            "parameters_mechanism": row.mean("parameters", "mechanism"),
            "train_flops_per_token": row.mean("flops", "train_per_token"),
            "train_flops_ratio": aggregate.ratio(row, "flops", "train_per_token"),
            "train_tokens_per_second": row.mean("speed", "train_tokens_per_second"),
            "speed_ratio": aggregate.ratio(row, "speed", "train_tokens_per_second", same_machine=True),
            "peak_bytes": row.mean("memory", "peak_bytes"),
            "memory_ratio": aggregate.ratio(row, "memory", "peak_bytes", same_machine=True),
        }
        if len(aggregate.compared) > 1:
            both = aggregate.seeds_and_test_set(row)
            line |= {
                "difference_p": over_seeds and over_seeds.p_value,
                "difference_p_holm": holm_seeds.get(row.key),
                "test_set_p_holm": holm_test_set.get(row.key),
                "seeds_and_test_set_low": both and both.low,
                "seeds_and_test_set_high": both and both.high,
                "seeds_needed": aggregate.seeds_needed(row),
            }
        for second in seconds:
            if second != "test_chrf":  # it has its own columns, in every table
                summary = row.summary(second)
                line |= {f"{second}_mean": summary.mean, f"{second}_sd": summary.sd}
        lines.append(line)
        for lost in row.lost:
            own = {"status": lost["status"], "reason": lost["reason"], "seeds": lost["seed"]}
            shared = {key: line[key] for key in ("experiment", "model", "options", "label", "metric")}
            lines.append({**dict.fromkeys(line), **shared, **own})
    return lines


def _page(aggregate: Aggregate) -> str:
    chosen = columns(aggregate)
    parts = [
        f"# {inert(aggregate.experiment)}\n",
        markdown(header(chosen), cells(aggregate, chosen)),
        bullets([*how_to_read(aggregate), *provenance(aggregate)]),
        f"{HOW_MADE}\n",
        command_block(aggregate),
    ]
    return "\n".join(parts)


def render_tables(results: Path, aggregates: Sequence[Aggregate]) -> dict[Path, str]:
    """``results/tables/<experiment>.{md,csv,tex}`` of each experiment: path to content, nothing written yet."""
    files = {}
    for aggregate in aggregates:
        base, chosen = Path(results) / "tables" / safe_name(aggregate.experiment), columns(aggregate)
        files[Path(f"{base}.md")] = _page(aggregate)
        files[Path(f"{base}.csv")] = csv_table(aggregate)
        files[Path(f"{base}.tex")] = latex(header(chosen), cells(aggregate, chosen))
    return files
