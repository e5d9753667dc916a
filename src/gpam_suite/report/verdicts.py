"""The main table, each row of the paper beside what was found here, and the tables of the experiments that count."""

from collections.abc import Mapping, Sequence

import yaml

from gpam_suite.common.formatting import MISSING, number, percent
from gpam_suite.common.markup import markdown
from gpam_suite.records.environment import PUBLISHED
from gpam_suite.report import claims
from gpam_suite.report.tables import short_table
from gpam_suite.stats.aggregate import Aggregate
from gpam_suite.stats.claim import Finding

HEAD = ["Row of the paper", "Paper: softmax", "Paper: daGPAM", "Change", "Here: gain [95 %]", "Verdict", "Trained?"]


def table(findings: Mapping[str, Finding]) -> str:
    """A line for each row of the paper (``results/paper/dagpam.yaml``). ``findings`` are by the experiment that the row
    names as its ``claim``; until there is one, ``here`` of the row says how it stands."""
    rows = yaml.safe_load((PUBLISHED / "paper" / "dagpam.yaml").read_text(encoding="utf-8"))["rows"]
    return markdown(HEAD, [_line(row, findings.get(row.get("claim"))) for row in rows])


def _line(row: Mapping[str, object], found: Finding | None) -> list[str]:
    base, own = row["baseline"], row["dagpam"]
    change = percent(own / base - 1) if base and own else MISSING
    here = claims.standing(found) if found else [MISSING, str(row["here"]), MISSING]
    return [str(row["row"]), number(base), number(own), change, *here]


def counted(titles: Mapping[str, str], aggregates: Sequence[Aggregate], findings: Mapping[str, Finding]) -> str:
    """Every model of the experiments that a verdict counts, and the tests of their claims."""
    if not aggregates:
        return "No run that counts is published yet.\n"
    parts = []
    for found in aggregates:
        parts += [f"### {titles[found.experiment]}\n", short_table(found)]
        if claim := findings.get(found.experiment):
            parts += [claims.page(claim).partition("\n\n")[2]]
    return "\n".join(parts)
