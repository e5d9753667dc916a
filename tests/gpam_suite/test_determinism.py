"""The same seed gives the same bits; a clock set back does no harm; data that changed is noticed."""

import datetime
import json
import time
import types
from pathlib import Path

import pytest
from runs import run_here, tiny, train_here
from soak.bits import differences, parameters_of
from soak.same_bits import OTHER_SEED, equal_runs

from gpam.errors import UsageError
from gpam_suite.config.compose import folder_of
from gpam_suite.data import prepare
from gpam_suite.records.folder import read_record
from gpam_suite.run import run as run_module
from gpam_suite.run.outcomes import OUTCOME
from gpam_suite.run.run import run


@pytest.mark.parametrize(("task", "workers"), [("lm", (0, 2)), ("nmt", (0, 1))])
def test_the_same_seed_gives_the_same_bits_with_any_number_of_data_workers(tmp_path, task, workers):
    first, *same, other = equal_runs(task, tmp_path, workers)
    assert [differences(first, folder, records=False) for folder in same] == [[]] * len(same)
    assert parameters_of(other) != parameters_of(first), OTHER_SEED


def test_a_clock_that_goes_back_gives_no_negative_time(tmp_path, monkeypatch):
    """The clock on the wall loses an hour whenever somebody looks at it."""
    wall = [time.time()]

    def backwards():
        wall[0] -= 3600
        return wall[0]

    monkeypatch.setattr(time, "time", backwards)
    outcome = json.loads((train_here(tiny(tmp_path)) / OUTCOME).read_text(encoding="utf-8"))
    assert outcome["train_seconds"] > 0
    assert outcome["evaluate_seconds"] > 0


def test_a_record_ends_after_it_began_whatever_the_clock(tmp_path, monkeypatch):
    class Backwards(datetime.datetime):
        wall = datetime.datetime.now(datetime.UTC)

        @classmethod
        def now(cls, tz=None):
            cls.wall -= datetime.timedelta(hours=1)
            return cls.wall

    monkeypatch.setattr(run_module, "datetime", types.SimpleNamespace(**vars(datetime) | {"datetime": Backwards}))
    run_here(cfg := tiny(tmp_path))
    record = read_record(folder_of(cfg))
    assert record["finished"] >= record["started"]


def test_data_that_changed_under_a_finished_run_is_noticed(tmp_path, caplog):
    cfg = tiny(tmp_path, task="nmt")
    text = Path(cfg.dataset.folder)
    run_here(cfg)
    record = read_record(folder_of(cfg))
    assert record["finished"] >= record["started"]
    run(cfg)  # skipped
    lines = (text / "train.en").read_text(encoding="utf-8").splitlines(keepends=True)
    (text / "train.en").write_text("".join(["ANOTHER LINE\n", *lines[1:]]), encoding="utf-8")
    with pytest.raises(UsageError, match="is finished, but its data has changed since"):
        run(cfg)
    (text / "train.en").unlink()
    assert run(cfg) == record.headline
    assert "cannot be compared" in caplog.text


def test_a_run_does_not_go_on_with_other_text_and_tells_of_other_code(tmp_path, monkeypatch):
    def start(checksum, commit="a"):
        monkeypatch.setattr(run_module.environment, "git", lambda: {"commit": commit, "dirty": False})
        return run_module._begun(tmp_path, {"checksum": checksum, "begins_from": {}})

    start("one" * 8)
    start("two" * 8)  # nothing was trained on the first
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/checkpoint_last.pt").touch()
    start("two" * 8)
    with pytest.raises(
        UsageError, match=r"has begun with other text: its checksum was twotwotwotwo, now it is oneoneone"
    ):
        start("one" * 8)
    assert start("two" * 8) == {"commit": "a", "dirty": False}
    assert start("two" * 8, commit="b") == {"commit": "b", "dirty": True}
    begun = tmp_path / "begun.json"
    begun.write_text(begun.read_text(encoding="utf-8").replace("two", "one"), encoding="utf-8")
    with pytest.raises(UsageError, match=r"begun\.json is not as it was written .*: remove it to go on without"):
        start("one" * 8)


def test_a_preparation_that_was_changed_is_not_trained_on(tmp_path, monkeypatch):
    """Before the run it would be made again; here its worker finds it."""

    def spoilt(*nodes):
        prepared = prepare(*nodes)
        binary = prepared.bin / "train.bin"
        content = bytearray(binary.read_bytes())
        content[len(content) // 2] ^= 1
        binary.unlink()  # finished stages share their files with preparations
        binary.write_bytes(content)
        return prepared

    monkeypatch.setattr(run_module, "prepare", spoilt)
    with pytest.raises(UsageError, match=r"train\.bin was changed after it was prepared"):
        run_here(tiny(tmp_path))
