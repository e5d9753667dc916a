"""The table of an experiment, as Markdown and CSV, made from records and nothing else.

The same records give the same bytes: no date of today, no machine's path, a fixed order and fixed resampling seeds, so
that CI can make the tables again and compare.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from gpam_suite.common import formatting
from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import inert, markdown
from gpam_suite.common.tasks import RECALL
from gpam_suite.records.metrics import IN_PERCENT, LOWER_IS_BETTER, METRIC_LABEL
from gpam_suite.report.provenance import experiment_notes
from gpam_suite.stats.claim import as_shown
from gpam_suite.stats.comparisons import Line, comparisons, second_metrics
from gpam_suite.stats.over_seeds import Difference
from gpam_suite.stats.rows import Aggregate

_LONG_TABLE_ONLY = {
    "chrF, second test set ↑",
    "TER, second test set ↓",
    "Pieces with a wrong number of sentences ↓",
    "Difference on the test set [95 %]",
    "Over seeds, Holm",
    "On the test set, Holm",
    "Parameters",
    "Training speed ×",  # of runs that shared a machine
}


def metric_title(aggregate: Aggregate) -> str:
    """``Test perplexity per word`` or ``Test BLEU``: the headline metric with its unit, for table heads and axes."""
    unit = aggregate.unit if aggregate.task != RECALL.name else None
    return METRIC_LABEL[aggregate.metric] + (f" per {unit}" if unit else "")


def difference_cell(found: Difference | None, digits: int = 2) -> str:
    """A difference with its interval; a dash without one."""
    return formatting.estimate(found.estimate, found.low, found.high, digits) if found else MISSING


def gain_text(metric: str, gain: float, digits: int = 2) -> str:
    """:func:`gpam_suite.stats.claim.as_shown` with its sign and unit."""
    return f"{formatting.signed(as_shown(metric, gain), digits)}{' %' if metric in IN_PERCENT else ''}"


def gain_with_interval(metric: str, found: Difference | None) -> str:
    """:func:`gain_text` of a difference on that scale, and of the ends of its interval, where it has one."""
    if found is None:
        return MISSING
    if found.low is None:
        return gain_text(metric, found.estimate)
    digits = formatting.enough(as_shown(metric, found.low), as_shown(metric, found.high))
    estimate, low, high = (gain_text(metric, gain, digits) for gain in (found.estimate, found.low, found.high))
    return f"{estimate} [{low}, {high}]"


def _cells(aggregate: Aggregate, line: Line) -> dict[str, str]:
    """Title to text of a model's line of :func:`comparisons`."""
    digits = aggregate.digits

    def difference(of: str, interval: str) -> str:
        return formatting.estimate(line[of], line[f"{interval}_low"], line[f"{interval}_high"], digits)

    finished, lost = line["seeds_finished"], line["seeds_lost"]
    cells = {"Model": line["label"], "Seeds": f"{finished} of {finished + lost}" if lost else str(finished)}
    for metric in (aggregate.metric, *second_metrics(aggregate)):
        prefix = {aggregate.metric: "", "test_chrf": "chrf_"}.get(metric, f"{metric}_")
        title = metric_title(aggregate) if metric == aggregate.metric else METRIC_LABEL[metric]
        way = "↓" if metric in LOWER_IS_BETTER else "↑"
        cells[f"{title} {way}"] = formatting.plus_minus(line[f"{prefix}mean"], line[f"{prefix}sd"], digits)
    cells["Difference over seeds [95 %]"] = difference("difference", "difference")
    on_test_set = difference("test_set_difference", "test_set")
    if on_test_set != MISSING:
        on_test_set += f", {formatting.p_value(line['test_set_p'])}"
    cells["Difference on the test set [95 %]"] = on_test_set
    if len(aggregate.compared) > 1:
        cells |= {
            "Over seeds, Holm": formatting.p_value(line["difference_p_holm"]),
            "On the test set, Holm": formatting.p_value(line["test_set_p_holm"]),
        }
    drawn = line["seeds_and_test_set_low"] is not None
    both = difference("test_set_difference", "seeds_and_test_set") if drawn else MISSING
    cells["Difference over seeds and test set [95 %]"] = both
    ratio = line["parameters_ratio"]
    of_baseline = aggregate.baseline and (line["model"], line["options"]) == aggregate.baseline.key
    return cells | {
        "Parameters": formatting.count(line["parameters"]),
        "Extra parameters": MISSING if ratio is None or of_baseline else formatting.percent(ratio - 1),
        "FLOPs per token ×": formatting.number(line["train_flops_ratio"]),
        "Training speed ×": formatting.number(line["speed_ratio"]),
        "Peak memory ×": formatting.number(line["memory_ratio"]),
    }


def table(aggregate: Aggregate, *, short: bool = False) -> tuple[list[str], list[list[str]]]:
    """Titles and text: a row for each model, then one for each of its lost seeds with the reason. A ``short`` table
    keeps fewer columns."""
    head: list[str] = []
    cells = []
    for line in comparisons(aggregate):
        if line["seeds_finished"] is not None:
            own = _cells(aggregate, line)
            head = [title for title in own if not (short and title in _LONG_TABLE_ONLY)]
            cells.append([*(own[title] for title in head), MISSING])
        else:
            dashes = [MISSING] * (len(head) - 1)
            cells.append([f"{line['label']}, seed {line['seeds']}", *dashes, f"{line['status']}: {line['reason']}"])
    if all(line[-1] == MISSING for line in cells):
        return head, [line[:-1] for line in cells]
    return [*head, "Status"], cells


def short_table(aggregate: Aggregate) -> str:
    """The table of pages, in Markdown; a column with nothing to say is left out."""
    head, lines = table(aggregate, short=True)
    said = [any(cell != MISSING for cell in column) for column in zip(*lines, strict=True)]
    return markdown(list(compress(head, said)), [list(compress(line, said)) for line in lines])


def csv_table(aggregate: Aggregate) -> str:
    """:func:`comparisons` with six significant digits, for those who go on computing."""
    return csv_text(six_digits(comparisons(aggregate)))


def six_digits(lines: Iterable[Line]) -> list[Line]:
    """The lines with their floats as text of six significant digits: fewer differ between machines than are shown."""
    return [{name: f"{one:.6g}" if isinstance(one, float) else one for name, one in line.items()} for line in lines]


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
