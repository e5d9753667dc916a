"""The table of an experiment, as Markdown and CSV, made from records and nothing else.

The same records give the same bytes: no date of today, no machine's path, a fixed order and fixed resampling seeds, so
that CI can make the tables again and compare.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gpam_suite.common import formatting
from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import inert, markdown
from gpam_suite.common.tasks import RECALL
from gpam_suite.records.metrics import LOWER_IS_BETTER, METRIC_LABEL
from gpam_suite.report.provenance import experiment_notes
from gpam_suite.stats.aggregate import Aggregate
from gpam_suite.stats.bootstrap import Bootstrap
from gpam_suite.stats.comparisons import Line, comparisons, second_metrics
from gpam_suite.stats.over_seeds import Difference

_LONG_TABLE_ONLY = {"test_chrf", "test_ter", "test_misaligned_pieces"}


class Column(NamedTuple):
    """A column: its title, the cell of a model's line of :func:`comparisons`, and whether a short table keeps it."""

    title: str
    cell: Callable[[Line], str]
    short: bool = True


def metric_title(aggregate: Aggregate) -> str:
    """``Test perplexity per word`` or ``Test BLEU``: the headline metric with its unit, for table heads and axes."""
    unit = aggregate.unit if aggregate.task != RECALL.name else None
    return METRIC_LABEL[aggregate.metric] + (f" per {unit}" if unit else "")


def difference_cell(aggregate: Aggregate, found: Difference | Bootstrap | None) -> str:
    """A difference in the headline metric with its interval; a dash without one."""
    return formatting.estimate(found.estimate, found.low, found.high, aggregate.digits) if found else MISSING


def _columns(aggregate: Aggregate) -> list[Column]:
    digits, metrics = aggregate.digits, [aggregate.metric, *second_metrics(aggregate)]

    def titled(metric: str) -> str:
        name = metric_title(aggregate) if metric == aggregate.metric else METRIC_LABEL[metric]
        return f"{name} {'↓' if metric in LOWER_IS_BETTER else '↑'}"

    def score(line: Line, metric: str) -> str:
        prefix = {aggregate.metric: "", "test_chrf": "chrf_"}.get(metric, f"{metric}_")
        return formatting.plus_minus(line[f"{prefix}mean"], line[f"{prefix}sd"], digits)

    def difference(line: Line, of: str, interval: str) -> str:
        return formatting.estimate(line[of], line[f"{interval}_low"], line[f"{interval}_high"], digits)

    def on_test_set(line: Line) -> str:
        found = difference(line, "test_set_difference", "test_set")
        return found if found == MISSING else f"{found}, {formatting.p_value(line['test_set_p'])}"

    def both(line: Line) -> str:
        drawn = line["seeds_and_test_set_low"] is not None
        return difference(line, "test_set_difference", "seeds_and_test_set") if drawn else MISSING

    def extra(line: Line) -> str:
        ratio = line["parameters_ratio"]
        of_baseline = aggregate.baseline and (line["model"], line["options"]) == aggregate.baseline.key
        return MISSING if ratio is None or of_baseline else formatting.percent(ratio - 1)

    def seeds(line: Line) -> str:
        finished, lost = line["seeds_finished"], line["seeds_lost"]
        return f"{finished} of {finished + lost}" if lost else str(finished)

    def number(name: str) -> Callable[[Line], str]:
        return lambda line: formatting.number(line[name])

    many = [
        Column("Over seeds, Holm", lambda line: formatting.p_value(line["difference_p_holm"]), short=False),
        Column("On the test set, Holm", lambda line: formatting.p_value(line["test_set_p_holm"]), short=False),
        Column("Difference over seeds and test set [95 %]", both, short=False),
    ]
    return [
        Column("Model", lambda line: line["label"]),
        Column("Seeds", seeds),
        *(Column(titled(one), partial(score, metric=one), one not in _LONG_TABLE_ONLY) for one in metrics),
        Column("Difference over seeds [95 %]", lambda line: difference(line, "difference", "difference")),
        Column("Difference on the test set [95 %]", on_test_set, short=False),
        *(many if len(aggregate.compared) > 1 else []),
        Column("Parameters", lambda line: formatting.count(line["parameters"]), short=False),
        Column("Extra parameters", extra),
        Column("Training FLOPs ×", number("train_flops_ratio")),
        Column("Training speed ×", number("speed_ratio")),
        Column("Peak memory ×", number("memory_ratio")),
    ]


def table(aggregate: Aggregate, *, short: bool = False) -> tuple[list[str], list[list[str]]]:
    """Titles and text: a row for each model, then one for each of its lost seeds with the reason. A ``short`` table
    keeps fewer columns."""
    chosen = [column for column in _columns(aggregate) if column.short or not short]
    cells = []
    for line in comparisons(aggregate):
        if line["seeds_finished"] is not None:
            cells.append([*(column.cell(line) for column in chosen), MISSING])
        else:
            dashes = [MISSING] * (len(chosen) - 1)
            cells.append([f"{line['label']}, seed {line['seeds']}", *dashes, f"{line['status']}: {line['reason']}"])
    return [*(column.title for column in chosen), "Status"], cells


def short_table(aggregate: Aggregate) -> str:
    """The table of pages, in Markdown."""
    return markdown(*table(aggregate, short=True))


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


def render_tables(results: Path, aggregates: Sequence[Aggregate]) -> dict[Path, str]:
    """``results/tables/<experiment>.{md,csv}`` of each experiment: path to content, nothing written yet."""
    files = {}
    for aggregate in aggregates:
        base, found = Path(results) / "tables" / safe_name(aggregate.experiment), table(aggregate)
        page = [f"# {inert(aggregate.experiment)}\n", markdown(*found), *experiment_notes(aggregate)]
        files[Path(f"{base}.md")] = "\n".join(page)
        files[Path(f"{base}.csv")] = csv_table(aggregate)
    return files
