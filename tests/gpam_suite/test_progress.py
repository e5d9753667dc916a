"""Where the runs of an experiment stand, as their folders say."""

import os
import re
import shutil
import sys
import time

import pytest
from record_factory import make_record, store

from gpam.errors import UsageError
from gpam_suite.common.sections import Table
from gpam_suite.records.lines import append_history
from gpam_suite.run.progress import Progress, members, row, seconds_left


@pytest.fixture
def running(tmp_path):
    folder = tmp_path / "runs" / "x" / "dagpam-lambda_neg=0.25" / "seed2-12345678"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("fairseq: {optimization: {max_update: 600}}")
    return folder


def test_a_run_under_way_says_how_far_it_is(running):
    for update, loss in ((20, 9.5), (40, 8.25), (60, 8.0)):
        append_history(running, {"update": update, "split": "train", "loss_bits": loss, "train_seconds": 4.0})
    for loss in (8.5, 8.75):
        append_history(running, {"update": 60, "split": "valid", "loss_bits": loss})
    with (running / "metrics.jsonl").open("a") as file:
        file.write('{"update": 8')  # being written
    # 8 s for the 40 updates since the first row, so 0.2 s an update for the 540 that are left
    assert row(running) == ["dagpam-lambda_neg=0.25 seed2", "running", "60/600", "8.000", "8.500", "2 min"]


def test_status_before_and_after(running, tmp_path, monkeypatch):
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    long_ago = now - 1200
    os.utime(running / "config.yaml", (long_ago, long_ago))
    assert row(running)[1:3] == ["silent for 20 min", "–"]
    (lost,) = store(tmp_path, make_record(status="diverged", reason="the loss is NaN"))
    for copied in (-50, +50):  # a copy may have other times
        os.utime(lost.folder / "config.yaml", (time.time() + copied,) * 2)
        assert row(lost.folder)[1] == "diverged"
    (lost.folder / "record.json").unlink()  # as when it is tried again
    assert row(lost.folder)[1] == "running"


def test_a_run_that_was_stopped_is_not_under_way(running):
    (running / "outcome.json").write_text('{"status": "stopped", "reason": "saved at update 60 of 600"}')
    assert row(running)[1] == "stopped"
    for damaged in ('{"status": "sto', "[1]", "{}"):
        (running / "outcome.json").write_text(damaged)
        assert row(running)[1] == "running"


def test_time_left_is_said_from_the_first_row():
    first, second = {"update": 2, "train_seconds": 6.0}, {"update": 4, "train_seconds": 2.0}
    assert seconds_left([], 10) is None
    short = [{"update": update, "train_seconds": float(update == 4)} for update in range(1, 6)]
    assert seconds_left(short[:3], 10) is None  # fairseq rounds each to no second
    assert seconds_left(short, 10) == 5 / 4
    assert seconds_left(short[:3], 3) == 0
    assert seconds_left([first], 10) == 24.0
    assert seconds_left([first, second], 10) == 6.0  # the first one's start-up no longer counts
    paused = {"update": 6, "train_seconds": 3000.0}
    assert seconds_left([first, second, paused, {"update": 8, "train_seconds": 2.0}], 10) == 2.0  # nor does a pause


def test_what_has_begun_is_counted(running, tmp_path):
    killed_at_once = running.with_name("seed3-12345678") / ".lock"
    killed_at_once.parent.mkdir()
    killed_at_once.touch()
    table, said = members(tmp_path, "x").blocks
    assert [cells[:2] for cells in table.cells] == [["dagpam-lambda_neg=0.25 seed2", "running"]]
    assert said == "0 of 1 finished, 1 running"
    (running / "config.yaml").write_text("fairseq: {optim")
    table, said = members(tmp_path, "x").blocks  # the others are told of all the same
    assert re.fullmatch(r"damaged \(.*config\.yaml is no configuration of a run: .*\)", table.cells[0][1])
    assert said == "0 of 1 finished, 1 damaged"
    with pytest.raises(UsageError, match=r"runs/y has begun; wanted one of x"):
        members(tmp_path, "y")
    (tmp_path / "runs" / "y.tar.xz").touch()
    with pytest.raises(UsageError, match="the runs of y are packed"):
        members(tmp_path, "y")


def test_a_terminal_that_is_gone_ends_nothing(running, monkeypatch):
    class Gone:
        def write(self, _):
            raise OSError(5, "Input/output error")

    told = Progress(running, "a run", 100)
    append_history(running, {"update": 50, "split": "train", "train_seconds": 1.0})
    monkeypatch.setattr(sys, "stderr", Gone())
    assert told.look() is False


def test_two_of_one_model_and_seed_are_told_apart(running, tmp_path):
    for name in ("seed2-abcdef01", "seed3-12345678"):
        (other := running.parent / name).mkdir()
        shutil.copy(running / "config.yaml", other)
    (table,) = (block for block in members(tmp_path, "x").blocks if isinstance(block, Table))
    names = [line[0].removeprefix("dagpam-lambda_neg=0.25 ") for line in table.cells]
    assert names == ["seed2-12345678", "seed2-abcdef01", "seed3"]
