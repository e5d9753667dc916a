"""docs/reliability.md is what the promises and the records of ``make soak`` give, and every test it names is there."""

import ast
from pathlib import Path

import pytest
from soak.page import PAGE, page
from soak.parts import PARTS, named

from gpam.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]


def test_the_page_is_what_the_records_give():
    assert PAGE.read_text(encoding="utf-8") == page(), "docs/reliability.md is stale: python scripts/soak.py page"


def test_names_are_unique():
    assert len({part.name for part in PARTS}) == len(PARTS)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_promise_names_a_test_that_exists_and_work_that_can_be_called(part):
    file, _, name = part.test.partition("::")
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if part.work:
        assert callable(part.function())
        assert part.figure


def test_an_unknown_part_is_one_sentence():
    with pytest.raises(UsageError, match="no part 'nonsense'"):
        named("nonsense")
