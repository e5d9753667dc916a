"""The page of somebody's own runs: links that lead somewhere, nothing that is not in the records."""

import os
import re

import pytest
from record_factory import add_config, add_document_scores, add_history, make_record, store

from gpam.errors import UsageError
from gpam_suite.common.lock import locked
from gpam_suite.inside.hulls import analyse_hulls
from gpam_suite.report import page
from gpam_suite.report.page import build


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two experiments of two models and three seeds, and what was written of them."""
    results = tmp_path_factory.mktemp("report")
    runs = [
        make_record(model=model, seed=seed, value=value + 0.1 * seed, task=task, experiment=experiment)
        for task, experiment in (("lm", "lm/python docs"), ("nmt", "small_nmt"))
        for model, value in (("softmax", 30.0), ("dagpam", 29.0))
        for seed in (1, 2, 3)
    ]
    for record in store(results, *runs):
        add_history(record, record.headline)
        if record["task"] == "lm":
            add_document_scores(record)
    return results, {path: path.read_bytes() for path in build(results)}


def test_build_writes_everything_and_every_link_leads_to_a_file(built):
    results, written = built
    assert len(written) == 2 * 2 + 2 + 1  # tables, learning curves, the page
    page = (results / "README.md").read_text()
    files = re.findall(r"\]\(([^)]+)\)", page)
    assert len(files) == 2 * (2 + 1)
    assert all((results / target).is_file() for target in files)
    assert page.index("## lm/python docs") < page.index("## small_nmt")


def test_made_again_it_is_byte_identical(built):
    results, written = built
    assert {path: path.read_bytes() for path in build(results)} == written
    assert str(results) not in (results / "README.md").read_text()


def test_a_damaged_history_costs_the_figures_of_its_experiment_alone(tmp_path):
    runs = [make_record(seed=seed, experiment=name) for name in ("one", "two") for seed in (1, 2)]
    for record in store(tmp_path, *runs):
        add_history(record, 30.0)
    with (record.folder / "metrics.jsonl").open("a") as history:
        history.write("<<<<<<< HEAD\n{}\n")
    build(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["one-learning-curves.svg"]
    assert "Figures of two: left out. " in page and "metrics.jsonl" in page and "[All columns](tables/two.md)" in page


def test_a_damaged_analysis_costs_its_own_figures_alone(tmp_path):
    store(tmp_path, make_record())
    path = analyse_hulls(tmp_path)
    build(tmp_path)
    page = tmp_path / "README.md"
    assert "## The formula alone" in page.read_text()
    path.write_text(path.read_text().replace("area_ratio", "area", 1))
    build(tmp_path)
    left_out = "Figures of the formula alone: left out. "
    assert left_out in page.read_text() and "delete it and make it again" in page.read_text()


def test_what_has_begun_and_not_ended_is_named(tmp_path):
    record, other = store(
        tmp_path, make_record(), make_record(seed=2, model="dagpam", overrides_label="lambda_neg=0.7")
    )
    add_config(other)
    (other.folder / "record.json").unlink()
    build(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "Begun and not ended, so in no number here: dagpam-lambda_neg=0.7 seed2." in page
    assert record["model_label"] in page


def test_two_processes_do_not_make_a_page_at_once(tmp_path, monkeypatch):
    def another(results):
        with pytest.raises(UsageError, match="another process is working on"), locked(results, wait=False):
            pass
        return {}, {}

    (tmp_path / "runs").mkdir()
    monkeypatch.setattr(page, "read_comparable", another)
    assert build(tmp_path)


def test_no_runs_yet(tmp_path):
    (tmp_path / "runs").mkdir()
    assert build(tmp_path) == [tmp_path / "README.md"]
    assert "No run has been recorded yet." in (tmp_path / "README.md").read_text()


def test_nothing_is_written_where_something_else_is_kept(tmp_path):
    page, table = tmp_path / "README.md", tmp_path / "tables" / "own.md"
    table.parent.mkdir()
    for path in (page, table):
        path.write_text("my own")
    with pytest.raises(UsageError, match="wanted a results folder: one of runs, analysis, tuning is in it"):
        build(tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(UsageError, match="is not a page of results, and would be written over"):
        build(tmp_path)
    assert page.read_text() == table.read_text() == "my own"
    page.unlink()
    build(tmp_path)
    build(tmp_path)  # its own page


def test_what_a_killed_process_left_of_a_page_goes(tmp_path):
    """Not what another process is writing at the same time, and nobody else's."""
    (tmp_path / "runs").mkdir()
    old, new, mine = (tmp_path / name for name in (".README.md.old.tmp", ".README.md.new.tmp", ".mine.tmp"))
    for path in (old, new, mine):
        path.touch()
    for path in (old, mine):
        os.utime(path, (0, 0))
    build(tmp_path)
    assert new.exists() and mine.exists() and not old.exists()
