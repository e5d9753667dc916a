"""The page of somebody's own runs: links that lead somewhere, nothing that is not in the records."""

import os
import re

import pytest
from record_factory import add_document_scores, add_history, make_record, store

from gpam.errors import UsageError
from gpam_suite.report.page import build


def _pairs(dagpam, softmax=(30.0, 30.2, 30.4), **fields):
    return [
        make_record(model=model, seed=seed, value=value, **fields)
        for model, values in (("softmax", softmax), ("dagpam", dagpam))
        for seed, value in enumerate(values, start=1)
    ]


def _two_experiments(results):
    stored = store(
        results,
        *_pairs((29.0, 29.1, 29.2), experiment="lm/python docs"),
        *_pairs((29.0, 29.1, 29.2), task="nmt", experiment="small_nmt"),
    )
    for record in stored:
        add_history(record, record.headline)
        if record["task"] == "lm":
            add_document_scores(record)


def test_build_writes_everything_and_every_link_leads_to_a_file(tmp_path):
    _two_experiments(tmp_path)
    written = build(tmp_path)
    assert len(written) == len(set(written)) == 2 * 3 + 2 * 2 + 1  # tables, two figures, the page
    assert all(path.is_file() for path in written)
    page = (tmp_path / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", page)
    files = [target for target in targets if not target.startswith("#")]
    assert len(files) == 2 * (3 + 2)
    assert all((tmp_path / target).is_file() for target in files)
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-") for line in page.splitlines() if line[:3] == "## "
    }
    assert {target[1:] for target in targets if target.startswith("#")} <= headings
    assert page.index("lm/python docs") < page.index("small_nmt")


def test_report_again_is_byte_identical(tmp_path):
    _two_experiments(tmp_path)
    kept = {path: path.read_bytes() for path in build(tmp_path)}
    assert {path: path.read_bytes() for path in build(tmp_path)} == kept
    assert str(tmp_path) not in kept[tmp_path / "README.md"].decode()


def test_one_experiment_is_built_and_the_report_still_holds_all(tmp_path):
    _two_experiments(tmp_path)
    names = {path.name for path in build(tmp_path, "small_nmt")}
    assert "small_nmt.md" in names
    assert "lm_python_docs.md" not in names
    assert "lm/python docs" in (tmp_path / "README.md").read_text()
    with pytest.raises(UsageError, match="did you mean 'small_nmt'"):
        build(tmp_path, "smal_nmt")


def test_no_runs_yet(tmp_path):
    assert build(tmp_path) == [tmp_path / "README.md"]
    assert "No run has been recorded yet." in (tmp_path / "README.md").read_text()


def test_what_a_killed_process_left_of_a_page_goes(tmp_path):
    """Not what another process is writing at the same time."""
    old, new = (tmp_path / f".README.md.{name}.tmp" for name in ("old", "new"))
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    build(tmp_path)
    assert new.exists() and not old.exists()
