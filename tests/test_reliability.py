"""docs/reliability.md has the figures that ``make soak`` left, and every test and part that it names is there."""

import ast
import pkgutil
import re
from pathlib import Path

from soak.page import PAGE, page
from soak.parts import PARTS, named

ROOT = Path(__file__).resolve().parents[1]
ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "::" in line]


def test_the_figures_are_those_of_the_records():
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/reliability.md is stale: python scripts/soak.py page"


def test_every_promise_names_a_test_that_exists():
    assert len(ROWS) > 40
    for row in ROWS:
        ((file, name),) = re.findall(r" \| `(tests/\S+\.py)::(\w+)` \| ", row)
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, row


def test_a_promise_without_figures_is_covered_whole_and_each_part_is_of_one_promise():
    parts = [re.findall(r"`make soak PARTS=([\w-]+)`", row) for row in ROWS]
    assert [name for names in parts for name in names] == [part.name for part in named("")]
    assert all(names or row.endswith(" | the test covers it whole |") for row, names in zip(ROWS, parts, strict=True))
    assert all(callable(pkgutil.resolve_name(part.work)) for part in PARTS)
