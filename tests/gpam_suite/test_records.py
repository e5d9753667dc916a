"""The record: what goes in comes out, and nothing broken, cut off or mislaid passes as a result."""

import json
import math
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from record_factory import make_record, store

from gpam.errors import UsageError
from gpam_suite.common.files import safe_name
from gpam_suite.config.identity import config_hash, run_folder
from gpam_suite.records import environment, folder
from gpam_suite.records.folder import is_finished, read_record, read_records, write_record
from gpam_suite.records.lines import append_history, read_history, read_scores, write_scores


def test_schema_is_itself_valid():
    Draft202012Validator.check_schema(folder.SCHEMA)


@pytest.mark.parametrize("task", ["lm", "nmt"])
def test_round_trip(tmp_path, task):
    record = make_record(task=task, value=27.5)
    assert not is_finished(tmp_path)
    path = write_record(tmp_path, record)
    assert path == tmp_path / "record.json"
    assert read_record(tmp_path).data == {"schema_version": folder.SCHEMA_VERSION, **record}
    assert is_finished(tmp_path) and read_record(tmp_path).headline == 27.5
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]  # no temporary file is left


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"colour": "red"}, "colour"),
        ({"hardware": None}, "'hardware' is a required property"),
        ({"status": "done"}, "status"),
        ({"reason": "because"}, "reason"),
        ({"status": "failed"}, "reason"),
        ({"metrics": {"valid_perplexity": 3.0}}, "test_perplexity"),
        ({"metrics": {"test_perplexity": math.nan}}, "metrics.test_perplexity"),
        ({"protocol": {"unit": "word"}}, "protocol"),
        ({"parameters": {"total": 3}}, "parameters"),
        ({"git": {"commit": "abc"}}, "git"),
        ({"config_hash": "xyz"}, "config_hash"),
        ({"started": "yesterday"}, "started"),
        ({"started": None}, "started"),
        ({"started": "2026-02-30T10:00:00Z"}, "started"),
        ({"metrics": {"test_perplexity": -5.0}}, "less than the minimum"),
        ({"model_label": "a\x1b[31m"}, "model_label: .* is not a 'text without control characters'"),
    ],
)
def test_invalid_record_is_not_written(tmp_path, change, complaint):
    with pytest.raises(UsageError, match=complaint):
        given = {**make_record(), **change}
        write_record(tmp_path / "run", {key: value for key, value in given.items() if key != "hardware" or value})
    assert not (tmp_path / "run").exists()


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

    monkeypatch.setattr("os.replace", no_space)
    with pytest.raises(OSError, match="no space"):
        write_record(tmp_path, make_record(value=1.0))
    assert (tmp_path / "record.json").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]


def _by_hand(text):
    """One of before records had a checksum of their own."""
    record = {**json.loads(text), "world_size": 0}
    del record["sha256"]
    return json.dumps(record)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda text: text[:-40], r"record\.json is cut off.*run again"),
        (lambda text: text.replace(": 30.0", ": 29.0", 1), r"was changed.*its checksum is not the one"),
        (lambda text: text.replace('"schema_version": 1', '"schema_version": 99'), "schema version 99"),
        (_by_hand, "world_size: 0 is less than the minimum"),
        (lambda text: text[:-3] + ', "more": NaN}', "NaN is no number"),
        (lambda text: text[:-3] + ', "more": 1e999}', "1e999 is larger than any number here"),
        (lambda text: text[:-3] + ', "more": 1' + "0" * 5000 + "}", "is larger than any number here"),
        (lambda text: text.replace('"Softmax"', r'"\ud800"'), "surrogates not allowed"),
        (lambda text: text[:-3] + ', "status": "finished"}', "the key 'status' stands there twice"),
        (lambda text: "[" * 100_000, "nested too deeply"),
        (lambda text: "[]", "does not fit the schema"),
    ],
)
def test_a_record_that_no_run_wrote_is_refused(tmp_path, damage, sentence):
    """Python's reader takes NaN, numbers that become infinity, and the last of two equal keys."""
    path = write_record(tmp_path, make_record(value=30.0))
    text = path.read_text()
    path.write_text(damage(text))
    with pytest.raises(UsageError, match=sentence):
        read_record(tmp_path)
    path.write_text(json.dumps(json.loads(text)))  # the same in other words
    assert read_record(tmp_path).headline == 30.0


def test_a_run_that_has_not_ended_has_no_record(tmp_path):
    with pytest.raises(UsageError, match=r"record\.json does not exist, the run has not ended: run it again"):
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
        ("a/b", "a:b"),
        (".a", "a"),
        ("", "_"),
        ("\u00e9", "e\u0301"),
        ("x" * 300 + "a", "x" * 300 + "b"),
    ],
)
def test_distinct_names_stay_distinct(one, other, tmp_path):
    assert one != other
    assert safe_name(one) != safe_name(other)
    if one and other:
        store(tmp_path, make_record(experiment=one), make_record(experiment=other, value=40.0))
        assert len(read_records(tmp_path, one)) == len(read_records(tmp_path, other)) == 1


def test_config_hash():
    config = {"model": {"lambda_pos": 1.0, "heads": [1, 2]}, "seed": 1}
    # SHA-256 of '{"model":{"heads":[1,2],"lambda_pos":1},"seed":1}'
    assert config_hash(config) == config_hash({"seed": 1, "model": {"heads": (1, 2), "lambda_pos": 1}})
    assert config_hash(config) == "ced3ba6c"
    assert config_hash({**config, "seed": 2}) != config_hash(config)
    assert config_hash({"a": True}) != config_hash({"a": 1})


def test_the_command_in_a_record_can_be_typed_again_on_another_machine(monkeypatch):
    given = ["model.label=my own", "++fairseq.optimization.lr=[0.1]", "hydra.searchpath=[file:///mine]"]
    monkeypatch.setattr(
        environment.sys, "argv", ["scripts/train.py", *given, "paths.data=/somewhere", "hydra.job.chdir=false"]
    )
    words = shlex.split(environment.command())
    assert words == ["python", "scripts/train.py", *given[:1], "fairseq.optimization.lr=[0.1]", *given[2:]]


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
    (tmp_path / "metrics.jsonl").write_text(torn)
    assert read_history(tmp_path) == []
    append_history(tmp_path, {"update": 1})
    append_history(tmp_path, {"update": 2})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert [row["update"] for row in read_history(tmp_path)] == [1, 2]
    append_history(tmp_path, {"update": 4})  # a run that goes on does not glue its line to the torn one
    assert [row["update"] for row in read_history(tmp_path)] == [1, 2, 4]


def test_broken_line_inside_is_an_error(tmp_path):
    for line, wrong in (('{"upd', "Unterminated"), ('{"update": 2, "loss": NaN}', "NaN is no number"), ("[]", "")):
        (tmp_path / "metrics.jsonl").write_text(f'{{"update": 1}}\n{line}\n{{"update": 3}}\n')
        with pytest.raises(UsageError, match=rf"metrics\.jsonl line 2 is not a JSON object.*{wrong}"):
            read_history(tmp_path)
    for row in ('{"split": "train"}', '{"update": null}', '{"update": "2"}', '{"update": true}'):
        (tmp_path / "metrics.jsonl").write_text(f'{{"update": 1}}\n{row}\n')
        with pytest.raises(UsageError, match=r"metrics\.jsonl line 2 names no update"):
            read_history(tmp_path)


def test_scores_round_trip_and_cut_off(tmp_path):
    assert read_scores(tmp_path) == []
    rows = [{"document": i, "words": 10 + i, "nll": 20.5 + i} for i in range(3)]
    path = write_scores(tmp_path, rows)
    assert read_scores(tmp_path) == rows
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UsageError, match="cut off"):
        read_scores(tmp_path)


def test_the_commit_says_whether_what_decides_a_result_was_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    assert environment.git() is None
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        own = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
        own += ["-c", "core.hooksPath=/dev/null"]
        subprocess.run(["git", "-C", tmp_path, *own, *words], check=True)
    (tmp_path / "notes.txt").write_text("no part of it\n")
    subprocess.run(["git", "-C", tmp_path, "config", "status.showUntrackedFiles", "no"], check=True)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "none"))  # as in a hook of another repository's
    then = environment.git()
    monkeypatch.delenv("GIT_DIR")
    assert then["dirty"] is False and not environment.changed("src/a.py", then)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    assert environment.git()["dirty"] is True
    subprocess.run(["git", "-C", tmp_path, "add", "src"], check=True)
    assert environment.changed("src/a.py", then) and not environment.changed("src/b.py", then)
    assert not environment.changed("src/a.py", None) and not environment.changed("src/a.py", {"commit": "0" * 40})
