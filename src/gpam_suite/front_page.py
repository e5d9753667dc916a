"""What the project's front page says of the published records: filled in from them, never typed."""

import re
from dataclasses import replace
from pathlib import Path

from gpam_suite.aggregate import Aggregate, read_aggregates
from gpam_suite.answers.glance import glance
from gpam_suite.answers.page import headline, in_a_word
from gpam_suite.environment import ROOT
from gpam_suite.formatting import plural
from gpam_suite.provenance import command_block
from gpam_suite.reading import reading
from gpam_suite.records import safe_name, write_atomically
from gpam_suite.statistics import ENOUGH_SEEDS
from gpam_suite.tables import short_table

PUBLISHED, README = ROOT / "results", ROOT / "README.md"
_TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_FINDING = re.compile(r"(<!-- finding -->\n).*?(<!-- end of finding -->)", re.DOTALL)


def filled(text: str, results: Path = PUBLISHED) -> str:
    """``text`` with headline, figure and answers in ``<!-- finding -->`` ... ``<!-- end of finding -->``, and with
    table, reading, figure and command in each ``<!-- table: EXPERIMENT -->`` ... ``<!-- end of table -->``."""
    aggregates = read_aggregates(results)
    by_name = {found.experiment: found for found in aggregates}

    def block(match: re.Match[str]) -> str:
        found = by_name.get(match[2])
        content = f"No run of {match[2]} is published yet.\n" if found is None else f"\n{_block(found)}"
        return f"{match[1]}{content}{match[3]}"

    parts = [headline(results, aggregates), *glance(results, aggregates, "results")[:1], in_a_word(results, aggregates)]
    finding = "\n\n".join(part.rstrip("\n") for part in parts)
    return _TABLE.sub(block, _FINDING.sub(lambda match: f"{match[1]}\n{finding}\n{match[2]}", text))


def _block(found: Aggregate) -> str:
    """The models with enough seeds; of the others only how many there are, and where."""
    shown = replace(found, rows=tuple(row for row in found.rows if len(row.records) >= ENOUGH_SEEDS))
    name, sentences = found.experiment, reading(shown)
    if others := len(found.rows) - len(shown.rows):
        sentences.append(f"{plural(others, 'model')} more with fewer seeds: [all rows](results/README.md#{name}).")
    return (
        f"{short_table(shown)}\n"
        f"{''.join(f'- {sentence}{chr(10)}' for sentence in sentences)}\n"
        f"![results of {name}](results/figures/{safe_name(name)}-results.svg)\n\n"
        f"{command_block(shown)}"
    )


def update_front_page() -> Path:
    """Rewrite README.md's tables from ``results/``."""
    return write_atomically(README, filled(README.read_text(encoding="utf-8")))
