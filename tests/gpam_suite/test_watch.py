"""The table of a multirun's members: what it reads from their folders, and how it is shown."""

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from record_factory import add_config, make_record, store
from rich.console import Console

from gpam_suite.records.folder import append_history
from gpam_suite.run.members import Member, read_member, seconds_left, summary
from gpam_suite.run.watch import render, watch

ROOT = Path(__file__).resolve().parents[2]


def train_row(folder, update, loss, seconds=2.0):
    append_history(folder, {"update": update, "split": "train", "loss_bits": loss, "train_seconds": seconds})


@pytest.fixture
def running(tmp_path):
    folder = tmp_path / "runs" / "x" / "dagpam-lambda_neg=0.25" / "seed2-12345678"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("fairseq: {optimization: {max_update: 600}}")
    return folder


def test_a_running_member_says_how_far_it_is(running):
    for update, loss in ((20, 9.5), (40, 8.25), (60, 8.0)):
        train_row(running, update, loss, seconds=4.0)
    for loss in (8.5, 8.75):
        append_history(running, {"update": 60, "split": "valid", "loss_bits": loss})
    with (running / "metrics.jsonl").open("a") as file:
        file.write('{"update": 8')  # being written
    member = read_member(running)
    # 8 s for the 40 updates since the first row, so 0.2 s an update for the 540 that are left
    assert member == Member("dagpam-lambda_neg=0.25 seed2", "running", 60, 600, 8.0, 8.5, 108.0)
    assert member.cells()[2:] == ["60/600", "8.000", "8.500", "2 min"]


def test_status_before_and_after(running, tmp_path):
    assert read_member(tmp_path / "x" / "softmax-default" / "seed1-0").status == "queued"
    assert read_member(running, since=time.time() + 5).status == "queued"  # of an attempt before this sweep
    long_ago = time.time() - 1200
    os.utime(running / "config.yaml", (long_ago, long_ago))
    assert read_member(running).status == "silent for 20 min"
    (lost,) = store(tmp_path, make_record(status="diverged", reason="the loss is NaN"))
    add_config(lost)
    now = time.time()
    os.utime(lost.folder / "config.yaml", (now - 50, now - 50))
    assert read_member(lost.folder).status == "diverged"
    assert read_member(lost.folder, since=now + 5).status == "queued"  # it will be tried again
    os.utime(lost.folder / "config.yaml", (now + 5, now + 5))
    assert read_member(lost.folder).status == "running"  # it is being tried again
    (done,) = store(tmp_path, make_record(seed=7))
    assert read_member(done.folder, since=now + 5).status == "finished"  # it will be skipped


def test_no_pace_no_time_left():
    assert seconds_left([], 10) is None
    assert seconds_left([{"update": 1, "train_seconds": 1.0}], 10) is None


def test_summary_counts_every_member():
    statuses = ("finished", "diverged", "silent for 20 min", "queued")
    assert summary([Member(status, status) for status in statuses]) == "1 of 4 finished, 1 diverged, 1 silent, 1 queued"


def test_a_table_on_a_terminal_and_a_line_a_change_elsewhere():
    looks = [[Member("a", "running", 1, 9)]] * 2 + [[Member("a", "finished", 9, 9)]] * 2

    def shown(terminal):
        said, found = io.StringIO(), iter(looks)
        console = Console(file=said, force_terminal=terminal, width=80, height=30)
        rounds = iter([False, False, True])
        watch(lambda: next(found), console, lambda _: next(rounds))
        return said.getvalue()

    assert shown(False) == "0 of 1 finished, 1 running\n1 of 1 finished\n"
    assert "Best" not in shown(True)
    assert "Validation" in shown(True)
    assert "1/9" in shown(True)


def test_what_is_busy_stays_in_sight_on_a_low_terminal():
    console = Console(file=io.StringIO(), width=80, record=True)
    many = [Member(f"done{i}", "finished") for i in range(30)] + [Member("busy", "running", 5, 9)]
    console.print(render(many, height=20))
    text = console.export_text()
    assert "busy" in text
    assert "done" not in text
    assert "30 of 31 finished, 1 running" in text


def test_watching_from_another_terminal(running, tmp_path):
    killed_at_once = running.with_name("seed3-12345678") / ".lock"
    killed_at_once.parent.mkdir()
    killed_at_once.touch()
    long_ago = time.time() - 1200
    os.utime(running / "config.yaml", (long_ago, long_ago))
    command = [sys.executable, str(ROOT / "scripts" / "watch.py"), str(tmp_path)]
    ended = subprocess.run([*command, "x"], capture_output=True, text=True, check=True)
    assert ended.stdout == "0 of 1 finished, 1 silent\n"
    (running / "config.yaml").unlink()
    for name in ("x", "y"):
        wrong = subprocess.run([*command, name], capture_output=True, text=True, check=False)
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
        assert f"no run at {tmp_path}/runs/{name} has begun; wanted one of x" in wrong.stderr
