"""An archive is read like the folder it was made of, and never written to the disk."""

import os
import shutil
import tarfile

import pytest
from archives import tarred
from record_factory import add_document_scores, add_history, make_record, store

from gpam.errors import UsageError
from gpam_suite.records import archives
from gpam_suite.records.folder import read_records
from gpam_suite.records.lines import read_history, read_scores
from gpam_suite.records.settings import all_settings
from gpam_suite.report.compare import compare
from gpam_suite.report.tables import csv_table
from gpam_suite.stats.aggregate import read_aggregates


def runs(results):
    records = [
        make_record(model=model, seed=seed, value=30.0 + seed) for model in ("softmax", "dagpam") for seed in (1, 2)
    ]
    for record in store(results, *records):
        add_history(record, record.headline)
        add_document_scores(record)


def packed(folder):
    """Replace a folder by its archive."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    archive = archives.archive_of(folder)
    archive.write_bytes(archives.pack(files))
    shutil.rmtree(folder)
    return archive


@pytest.fixture
def archive(tmp_path):
    """Of four runs, in the place of their folder."""
    runs(tmp_path)
    return packed(tmp_path / "runs" / "small_lm")


def everything(results):
    """Whatever a reader takes from a results folder."""
    records = read_records(results)
    read = [(r.folder, r.data, read_history(r.folder), read_scores(r.folder), all_settings(r.config)) for r in records]
    sides = [results / "runs" / "small_lm" / f"{model}-default" for model in ("softmax", "dagpam")]
    return read, [csv_table(found) for found in read_aggregates(results)], compare(*sides)


@pytest.mark.parametrize("folder", ["runs/small_lm", "runs", "."])
def test_an_archive_reads_like_its_folder(tmp_path, folder):
    """Of one experiment, of all, and of the results folder itself."""
    results = tmp_path / "results"
    runs(results)
    before = everything(results)
    assert len(before[0]) == 4
    packed(results / folder)
    assert everything(results) == before


def test_an_experiment_that_is_not_there_is_named_beside_those_in_archives(tmp_path, archive):
    with pytest.raises(UsageError, match="did you mean 'small_lm'"):
        read_records(tmp_path, "smal_lm")


def test_what_is_on_the_disk_goes_before_the_archive(tmp_path, archive):
    store(tmp_path, make_record(seed=1, value=99.0), make_record(seed=3, value=31.0))
    assert [r.headline for r in read_records(tmp_path, "small_lm") if r["model"] == "softmax"] == [99.0, 32.0, 31.0]


def test_the_same_files_give_the_same_bytes():
    files = {"b/record.json": b"{}", "a/scores.jsonl": b"1\n" * 1000}
    assert archives.pack(files) == archives.pack(dict(reversed(files.items())))


def test_an_archive_that_is_replaced_within_a_tick_of_the_clock_is_read_anew(tmp_path):
    path = tmp_path / "runs.tar.xz"
    for number, content in enumerate((b"old", b"new")):
        new = tmp_path / str(number)
        new.write_bytes(archives.pack({"x": content}))
        os.utime(new, (1, 1))
        new.replace(path)
        assert archives.unpack(path)["x"] == content


def test_what_is_packed_beside_a_folder_further_up_is_nobodys_archive(tmp_path):
    """Such as a project beside its sources as they were downloaded."""
    results = tmp_path / "project" / "results"
    runs(results)
    before = everything(results)
    (tmp_path / "project.tar.xz").write_bytes(tarred([("project", tarfile.DIRTYPE, b"")], "w:xz"))
    assert everything(results) == before


def broken(path):
    path.write_bytes(path.read_bytes()[:-20])


def linked(path):
    link = ("softmax-default/seed1-00000000/record.json", tarfile.SYMTYPE, b"/etc/passwd")
    path.write_bytes(tarred([link], "w:xz"))


@pytest.mark.parametrize("spoil, words", [(broken, "is broken"), (linked, "is no plain file")])
def test_a_spoilt_archive_is_refused_in_a_sentence(tmp_path, archive, spoil, words):
    spoil(archive)
    with pytest.raises(UsageError, match=words):
        read_records(tmp_path)


def test_an_archive_made_to_fill_the_memory_is_refused(tmp_path, archive, monkeypatch):
    monkeypatch.setattr(archives, "MOST", 1000)
    with pytest.raises(UsageError, match="more than 1,000 bytes"):
        read_records(tmp_path)


def test_what_is_packed_can_be_read(tmp_path, monkeypatch):
    """A tar file is larger than what is in it: its limit is the same on either side."""
    monkeypatch.setattr(archives, "MOST", 20480)
    (path := tmp_path / "whole.tar.xz").write_bytes(archives.pack({"a": b"1" * 18000}))
    assert archives.unpack(path) == {"a": b"1" * 18000}
    with pytest.raises(UsageError, match="got 30,720 bytes for one archive, wanted at most 20,480"):
        archives.pack({"a": b"1" * 20000})
