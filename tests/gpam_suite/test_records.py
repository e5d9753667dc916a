"""The record: what goes in comes out, and nothing broken, cut off or mislaid passes as a result."""

import json
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from record_factory import make_record, store

from gpam.errors import UsageError
from gpam_suite.common.files import safe_name
from gpam_suite.config.identity import config_hash, run_folder
from gpam_suite.records import folder
from gpam_suite.records.folder import (
    append_history,
    is_finished,
    read_history,
    read_record,
    read_records,
    read_scores,
    write_record,
    write_scores,
)


def test_schema_is_itself_valid():
    Draft202012Validator.check_schema(folder.SCHEMA)


def test_round_trip(tmp_path):
    record = make_record()
    assert not is_finished(tmp_path)
    path = write_record(tmp_path, record)
    assert path == tmp_path / "record.json"
    assert read_record(tmp_path).data == {"schema_version": folder.SCHEMA_VERSION, **record}
    assert is_finished(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]  # no temporary file is left


@pytest.mark.parametrize("task", ["lm", "nmt"])
def test_both_tasks_have_a_headline(tmp_path, task):
    write_record(tmp_path, make_record(task=task, value=27.5))
    assert read_record(tmp_path).headline == 27.5


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"colour": "red"}, "colour"),
        ({"seed": "one"}, "seed"),
        ({"status": "done"}, "status"),
        ({"reason": "because"}, "reason"),
        ({"status": "failed"}, "reason"),
        ({"metrics": {"valid_perplexity": 3.0}}, "test_perplexity"),
        ({"metrics": {"test_perplexity": "low"}}, "metrics.test_perplexity"),
        ({"metrics": {"test_perplexity": math.nan}}, "metrics.test_perplexity"),
        ({"protocol": {"unit": "word"}}, "protocol"),
        ({"parameters": {"total": 3}}, "parameters"),
        ({"git": {"commit": "abc"}}, "git"),
        ({"config_hash": "xyz"}, "config_hash"),
        ({"started": "yesterday"}, "started"),
        ({"started": "2026-02-30T10:00:00Z"}, "started"),
        ({"started": "0000-01-01T00:00:00+00:00"}, "started"),
        ({"metrics": {"test_perplexity": -5.0}}, "less than the minimum"),
        ({"model_label": "a\x1b[31m"}, "model_label: .* is not a 'text without control characters'"),
    ],
)
def test_invalid_record_is_not_written(tmp_path, change, complaint):
    with pytest.raises(UsageError, match=complaint):
        write_record(tmp_path / "run", {**make_record(), **change})
    assert not (tmp_path / "run").exists()


def test_missing_field_is_named(tmp_path):
    record = make_record()
    del record["hardware"]
    with pytest.raises(UsageError, match="'hardware' is a required property"):
        write_record(tmp_path, record)


def test_not_finite_numbers_become_null_and_need_status_diverged(tmp_path):
    record = make_record(metrics={"test_perplexity": 1e308, "valid_loss": math.nan}, memory={"peak_bytes": None})
    write_record(tmp_path, {**record, "status": "diverged", "reason": "loss is NaN at update 7"})
    assert "NaN" not in (tmp_path / "record.json").read_text().replace("loss is NaN", "")
    read = read_record(tmp_path)
    assert read["metrics"] == {"test_perplexity": None, "valid_loss": None}
    assert read.headline is None
    assert not is_finished(tmp_path)


def test_failed_write_leaves_the_old_record(tmp_path, monkeypatch):
    write_record(tmp_path, make_record())
    before = (tmp_path / "record.json").read_bytes()

    def no_space(*_):
        raise OSError("no space left")

    monkeypatch.setattr(folder.os, "replace", no_space)
    with pytest.raises(OSError, match="no space"):
        write_record(tmp_path, make_record(value=1.0))
    assert (tmp_path / "record.json").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


def test_cut_off_record_names_file_and_way_out(tmp_path):
    path = write_record(tmp_path, make_record())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(UsageError, match=r"record\.json is cut off or not JSON .*run again"):
        read_record(tmp_path)


def test_a_record_that_was_changed_after_it_was_written_is_refused(tmp_path):
    path = write_record(tmp_path, make_record(value=30.0))
    text = path.read_text()
    path.write_text(text.replace('"test_perplexity": 30.0', '"test_perplexity": 29.0'))
    with pytest.raises(UsageError, match=r"was changed \(its checksum is not the one"):
        read_record(tmp_path)
    path.write_text(json.dumps(json.loads(text)))  # the same in other words
    assert read_record(tmp_path).headline == 30.0


def test_record_of_another_schema_version(tmp_path):
    path = write_record(tmp_path, make_record())
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    with pytest.raises(UsageError, match="schema version 99"):
        read_record(tmp_path)


def test_record_changed_by_hand_is_refused(tmp_path):
    """One of before records had a checksum of their own."""
    path = write_record(tmp_path, make_record())
    by_hand = {**json.loads(path.read_text()), "world_size": 0}
    del by_hand["sha256"]
    path.write_text(json.dumps(by_hand))
    with pytest.raises(UsageError, match="world_size: 0 is less than the minimum"):
        read_record(tmp_path)


def test_read_records_by_experiment(tmp_path):
    store(
        tmp_path, make_record(experiment="b", seed=2), make_record(experiment="b", seed=1), make_record(experiment="a")
    )
    (tmp_path / "runs" / "b" / "softmax-default" / "seed9-00000000").mkdir()  # a run that has not ended
    assert [(r["experiment"], r["seed"]) for r in read_records(tmp_path)] == [("a", 1), ("b", 1), ("b", 2)]
    assert [r["seed"] for r in read_records(tmp_path, "b")] == [1, 2]
    with pytest.raises(UsageError, match=r"No runs of experiment 'c'.*there are a, b"):
        read_records(tmp_path, "c")
    assert read_records(tmp_path / "elsewhere") == []


def test_mislaid_record_is_refused(tmp_path):
    write_record(run_folder(tmp_path, "ptb", "softmax", "default", 1, "0" * 8), make_record(experiment="wikitext2"))
    with pytest.raises(UsageError, match="is of experiment 'wikitext2' but lies under 'ptb'"):
        read_records(tmp_path)


# ------------------------------------------------------------------------------------------------------------- naming


def test_run_folder():
    folder = run_folder("results", "lm_ptb", "dagpam", "lambda_pos=1.0,lambda_neg=0.5", 3, "0123abcd")
    assert folder.as_posix() == "results/runs/lm_ptb/dagpam-lambda_pos=1.0,lambda_neg=0.5/seed3-0123abcd"


@given(st.text(min_size=1, max_size=400))
def test_safe_name_is_one_short_visible_file_name(text):
    name = safe_name(text)
    assert 0 < len(name.encode()) <= 150
    assert not set("/\\ :*?\"<>|'\n\0") & set(name)
    assert not name.startswith(".")
    assert safe_name(name) == name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("größe", "grüße"),
        ("实验一", "实验二"),
        ("a b", "a_b"),
        ("a/b", "a:b"),
        (".a", "a"),
        ("", "_"),
        ("\u00e9", "e\u0301"),
    ],
)
def test_distinct_names_stay_distinct(one, other, tmp_path):
    assert one != other
    assert safe_name(one) != safe_name(other)
    if one and other:
        store(tmp_path, make_record(experiment=one), make_record(experiment=other, value=40.0))
        assert len(read_records(tmp_path, one)) == len(read_records(tmp_path, other)) == 1


def test_a_record_that_is_no_plain_file_is_none(tmp_path):
    for make in (lambda path: path.mkdir(), os.mkfifo):
        folder = tmp_path / make.__name__.strip("<>")
        folder.mkdir()
        make(folder / "record.json")
        assert not is_finished(folder)
        with pytest.raises(UsageError, match=r"record\.json does not exist"):
            read_record(folder)


def test_long_names_that_differ_at_the_end_stay_different():
    assert safe_name("x" * 300 + "a") != safe_name("x" * 300 + "b")


def test_config_hash():
    config = {"model": {"lambda_pos": 1.0, "heads": [1, 2]}, "seed": 1}
    # SHA-256 of '{"model":{"heads":[1,2],"lambda_pos":1},"seed":1}'
    assert config_hash(config) == config_hash({"seed": 1, "model": {"heads": (1, 2), "lambda_pos": 1}})
    assert config_hash(config) == "ced3ba6c"
    assert config_hash({**config, "seed": 2}) != config_hash(config)
    assert config_hash({"a": True}) != config_hash({"a": 1})


# --------------------------------------------------------------------------------------------------- history, scores


def test_history_round_trip(tmp_path):
    assert read_history(tmp_path) == []
    rows = [{"update": 1, "split": "train", "loss": 2.5}, {"update": 1, "split": "valid", "perplexity": 12.0}]
    for row in rows:
        append_history(tmp_path, row)
    append_history(tmp_path, {"update": 2, "loss": math.nan})
    assert read_history(tmp_path) == [*rows, {"update": 2, "loss": None}]


@pytest.mark.parametrize("torn", ["", '{"update": 3, "lo', '{"update": 3}'])
def test_torn_last_line_is_dropped_and_only_that(tmp_path, torn):
    append_history(tmp_path, {"update": 1})
    append_history(tmp_path, {"update": 2})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert [row["update"] for row in read_history(tmp_path)] == [1, 2]
    append_history(tmp_path, {"update": 4})  # a run that goes on does not glue its line to the torn one
    assert [row["update"] for row in read_history(tmp_path)] == [1, 2, 4]


def test_history_torn_in_its_first_line(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"upd')
    assert read_history(tmp_path) == []
    append_history(tmp_path, {"update": 1})
    assert read_history(tmp_path) == [{"update": 1}]


def test_broken_line_inside_is_an_error(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n{"upd\n{"update": 3}\n')
    with pytest.raises(UsageError, match=r"metrics\.jsonl line 2"):
        read_history(tmp_path)


def test_scores_round_trip_and_cut_off(tmp_path):
    assert read_scores(tmp_path) == []
    rows = [{"document": i, "words": 10 + i, "nll": 20.5 + i} for i in range(3)]
    path = write_scores(tmp_path, rows)
    assert read_scores(tmp_path) == rows
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UsageError, match="cut off"):
        read_scores(tmp_path)
