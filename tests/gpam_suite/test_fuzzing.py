"""A sample of the cases that ``make soak PARTS=drawn-input`` runs in full, the same ones every time."""

import pytest
from fuzzing.full import TARGETS
from fuzzing.guided import CASES, NOT_INSTALLED, guide, reader
from fuzzing.target import fuzz, memory_folder


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_clear_sentence_or_a_right_result(target):
    with memory_folder() as folder:
        assert fuzz(target, target.sample, folder / "case") > 0


@pytest.mark.parametrize("name", CASES)
def test_an_intact_file_is_read(name):
    with memory_folder() as folder:
        (folder / "case").mkdir()
        check, whole = reader(name)
        for content in whole:
            check(content, folder / "case")


@pytest.mark.skipif(bool(NOT_INSTALLED), reason=NOT_INSTALLED)
def test_files_that_reach_every_branch():
    assert guide("text", 300) == 300
