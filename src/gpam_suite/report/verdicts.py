"""The main table: each row of the paper beside what was found here."""

from collections.abc import Mapping, Sequence

from gpam_suite.common.formatting import MISSING, number, percent
from gpam_suite.common.markup import markdown
from gpam_suite.report.paper import Paper
from gpam_suite.report.tables import short_table
from gpam_suite.stats.aggregate import Aggregate

HEAD = ["Row of the paper", "Paper: softmax", "Paper: daGPAM", "Change", "Here: softmax", "Here: difference [95 %]"]
HEAD += ["Verdict", "Trained?"]


def table(papers: Sequence[Paper]) -> str:
    """A line for each row of the paper; until runs of it count, ``here`` of the row says how it stands."""
    return markdown(HEAD, [_line(row) for paper in papers for row in paper.rows if "here" in row])


def _line(row: Mapping[str, object]) -> list[str]:
    base, own = row["baseline"], row["dagpam"]
    change = percent(own / base - 1) if base and own else MISSING
    return [str(row["row"]), number(base), number(own), change, MISSING, MISSING, str(row["here"]), MISSING]


def counted(titles: Mapping[str, str], aggregates: Sequence[Aggregate]) -> str:
    """Every model of the experiments that a verdict counts."""
    if not aggregates:
        return "No run that counts is published yet.\n"
    return "\n".join(part for found in aggregates for part in (f"{titles[found.experiment]}:\n", short_table(found)))
