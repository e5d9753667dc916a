"""wandb: what an offline run's file says, and a crash as a crash."""

import contextlib
import json
from collections import defaultdict
from types import SimpleNamespace

import pytest
from google.protobuf.message import DecodeError
from record_factory import add_document_scores, add_history, make_record, store
from runs import composed, places, until
from wandb_file import records

from gpam.errors import UsageError
from gpam_suite.records.folder import read_record
from gpam_suite.records.lines import append_history, read_history
from gpam_suite.report.wandb_report import report, save
from gpam_suite.run.tracking import Tracker

MODEL = ["model=dagpam", "model.lambda_neg=0.25", "seed=2"]


def tracked(tmp_path, **record):
    """A recorded run that was logged offline: its folder and wandb's."""
    (run,) = store(tmp_path, make_record(model="dagpam", seed=2, **record))
    if run["status"] == "finished":
        add_document_scores(run)
    add_history(run, final=30.0)
    append_history(run.folder, {"update": 100, "split": "gradient", "query_neg/decoder.layers.0.self_attn": 0.125})
    append_history(run.folder, {"update": 100, "split": "scalar", "lambda_neg/decoder.layers.0.self_attn": 0.375})
    cfg = composed("experiment=lm_laptop", *MODEL, *places(tmp_path), "tracking.mode=offline", "tracking.tags=[mine]")
    with Tracker(cfg, run.folder) as tracker:
        tracker.finish(run.data)
    (offline,) = run.folder.glob("wandb/offline-run-*")
    return run.folder, offline


def said(offline):
    """The run file's records by type, and what a run's config, summary and history hold by name."""
    found, names = defaultdict(list), {"summary": {}, "history": []}
    (file,) = offline.glob("run-*.wandb")

    def whole():
        """wandb's service writes on after finish() has returned: until then the file is empty, or torn."""
        with contextlib.suppress(ValueError, DecodeError):
            read = list(records(file))
            return read if read and read[-1].WhichOneof("record_type") == "exit" else None

    for record in until(whole):
        kind = record.WhichOneof("record_type")
        found[kind].append(getattr(record, kind))
    for summary in found["summary"]:
        names["summary"] |= {"/".join(item.nested_key) or item.key: item.value_json for item in summary.update}
    for row in found["history"]:
        names["history"].append(
            {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in row.item}
        )
    return found, names


def test_a_row_of_the_history_is_sent_once(tmp_path):
    sent = []
    tracker = Tracker(composed("experiment=lm_laptop", *places(tmp_path), "tracking.mode=offline"), tmp_path)
    tracker.run = SimpleNamespace(log=sent.append)
    for update in (1, 2):
        append_history(tmp_path, {"update": update, "split": "train", "loss_bits": 9.5})
        tracker.update()
        tracker.update()
    assert [row["update"] for row in sent] == [1, 2] and sent[0]["train/loss_bits"] == 9.5


def test_a_run_that_goes_on_is_one_run_of_wandbs_with_the_whole_history(tmp_path):
    cfg, ids = composed("experiment=lm_laptop", *places(tmp_path), "tracking.mode=offline"), []
    for update in (1, 2, 3):
        append_history(tmp_path, {"update": update, "split": "train", "loss_bits": 9.5})
        with Tracker(cfg, tmp_path) as tracker:
            tracker.update()
            ids.append(tracker.run.id)
        (offline,) = tmp_path.glob("wandb/offline-run-*")
        if update == 1:  # what wandb names a folder that is begun in the second of another one
            offline.rename(offline.with_name(f"{offline.name}-1"))
    assert len(set(ids)) == 1
    assert [row["update"] for row in said(offline)[1]["history"]] == [1, 2, 3]


@pytest.mark.parametrize(("had_sent", "sends"), [(1, [2, 3]), (3, [])])
def test_online_a_run_that_goes_on_sends_what_is_new(tmp_path, monkeypatch, had_sent, sends):
    """Also where its checkpoint is behind what it had sent."""
    given, sent = {}, []
    online = {"resumed": True, "starting_step": had_sent, "log": sent.append, "summary": {}}
    run = SimpleNamespace(define_metric=lambda *_, **__: None, finish=lambda **_: None, **online)
    monkeypatch.setattr("wandb.init", lambda **options: given.update(options) or run)
    begun = tmp_path / "wandb" / "run-20261128_070107-abcd1234"
    begun.mkdir(parents=True)
    (begun / "run-abcd1234.wandb").touch()
    for update in (1, 2):
        append_history(tmp_path, {"update": update, "split": "train", "loss_bits": 9.5})
    with Tracker(composed("experiment=lm_laptop", *places(tmp_path), "tracking.mode=online"), tmp_path) as tracker:
        tracker.update()
        append_history(tmp_path, {"update": 3, "split": "train", "loss_bits": 9.5})
        tracker.update()
    assert (given["id"], given["resume"]) == ("abcd1234", "allow")
    assert [row["update"] for row in sent] == sends


@pytest.mark.parametrize("mode", ["disabled", "offline"])
def test_what_wandb_is_told_by_the_environment_holds(mode, tmp_path, monkeypatch):
    given = {}
    run = SimpleNamespace(define_metric=lambda *_, **__: None, finish=lambda **_: None, summary={})
    monkeypatch.setattr("wandb.init", lambda **options: given.update(options) or run)
    monkeypatch.setattr("gpam_suite.run.tracking.logged_in", lambda: True)
    monkeypatch.setenv("WANDB_MODE", mode)
    with Tracker(composed("experiment=lm_laptop", *places(tmp_path), "tracking.mode=auto"), tmp_path):
        assert given["mode"] == mode


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return tracked(tmp_path_factory.mktemp("finished"))


def test_the_run_file_holds_what_was_run_and_what_came_out(finished):
    folder, offline = finished
    found, names = said(offline)
    (run,) = found["run"]
    assert (run.run_group, run.job_type, run.display_name) == ("lm_laptop", "train", "dagpam lambda_neg=0.25 seed 2")
    assert set(run.tags) == {"python_docs", "dagpam", "laptop_lm", "cpu", "mine"}
    config = {item.key: json.loads(item.value_json) for item in run.config.update if item.key != "_wandb"}
    assert config["model"]["lambda_neg"] == 0.25
    assert "paths" not in config
    record = read_record(folder)
    assert json.loads(names["summary"]["metrics/test_perplexity"]) == record["metrics"]["test_perplexity"]
    assert json.loads(names["summary"]["status"]) == "finished"
    assert found["exit"][0].exit_code == 0


def test_the_history_is_that_on_disk_with_gradients_and_lambdas(finished):
    folder, offline = finished
    _, names = said(offline)
    logged = {(row["update"], key): value for row in names["history"] if "update" in row for key, value in row.items()}
    for row in read_history(folder):
        for key, value in row.items():
            if isinstance(value, float):
                assert logged[row["update"], f"{row['split']}/{key}"] == value
    assert logged[100, "gradient/query_neg/decoder.layers.0.self_attn"] == 0.125
    assert logged[100, "scalar/lambda_neg/decoder.layers.0.self_attn"] == 0.375


def test_scores_and_record_are_there(finished):
    folder, offline = finished
    found, names = said(offline)
    keys = {key.split("/path")[0] for row in names["history"] for key in row}
    assert any(key.startswith("test/scores") for key in keys)
    (artifact,) = [one for one in found["artifact"] if one.type == "record"]
    assert artifact.name == f"record-{read_record(folder)['config_hash']}"
    files = {entry.path for entry in artifact.manifest.contents}
    assert files == {"record.json", "config.yaml", "metrics.jsonl", "scores.jsonl"}
    for name in files:
        assert (offline / "files" / "record" / name).read_bytes() == (folder / name).read_bytes()


def test_a_crash_is_a_crash(tmp_path):
    _, offline = tracked(tmp_path, status="diverged", reason="the loss is NaN")
    found, names = said(offline)
    assert found["exit"][0].exit_code == 1
    assert json.loads(names["summary"]["reason"]) == "the loss is NaN"


def test_a_wandb_that_dies_costs_one_warning_and_not_the_run(tmp_path, monkeypatch, caplog):
    def lost(*_, **__):
        raise ConnectionResetError("connection lost")

    dead = SimpleNamespace(define_metric=lambda *_, **__: None, log=lost, finish=lost, summary={})
    monkeypatch.setattr("wandb.init", lambda **_: dead)
    (run,) = store(tmp_path, make_record())
    add_history(run, final=30.0)
    with Tracker(composed("experiment=lm_laptop", *places(tmp_path), "tracking.mode=offline"), run.folder) as tracker:
        tracker.update()
        tracker.finish(run.data)
    assert caplog.messages == ["wandb is off for the rest of this run: connection lost"]


def test_the_report_puts_two_models_side_by_side(monkeypatch):
    """As wandb would be given it; a stand-in answers for wandb."""
    from wandb_workspaces.reports.v2 import interface

    service = SimpleNamespace(execute_graphql=lambda *_, **__: {"project": {"internalId": "1"}})
    monkeypatch.setattr(interface, "_get_api", lambda: SimpleNamespace(_service_api=service))
    text = report("me", "gpam", "lm_laptop")._to_model().model_dump_json(by_alias=True)
    assert "lm_laptop: softmax and dagpam" in text
    for told in ("softmax", "dagpam", "lm_laptop", "valid/token_perplexity", "metrics/test_bleu"):
        assert json.dumps(told)[1:-1] in text
    grid = next(block for block in report("me", "gpam", "lm_laptop").blocks if hasattr(block, "runsets"))
    assert [runs.name for runs in grid.runsets] == ["softmax", "dagpam"]


def test_a_report_without_wandb_is_one_sentence(monkeypatch):
    from wandb_workspaces.reports.v2 import interface

    def nobody():
        raise Exception("not logged in to W&B")

    monkeypatch.setattr(interface, "_get_api", nobody)
    with pytest.raises(UsageError, match="not logged in to W&B; make tables and make compare need no wandb"):
        save("me/gpam", "lm_laptop", ("softmax", "dagpam"))
