"""A run that is killed goes on and ends with the same bits; one that is asked to stop saves first."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from runs import LIMIT, alive, tiny_words, until
from soak.kills import Kill, Runs

from gpam.errors import UsageError
from gpam_suite.common import stopping
from gpam_suite.common.lock import locked
from gpam_suite.common.places import ROOT
from gpam_suite.records.folder import RECORD
from gpam_suite.records.lines import HISTORY
from gpam_suite.run.outcomes import WORKER_LOG
from gpam_suite.run.run import run


def runs_of(task, folder):
    """Runs of a task, with one that nothing stopped."""
    made = Runs(task, folder)
    made.never_killed()
    return made


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return runs_of("lm", tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("task", ["lm", "nmt"])
def test_a_killed_run_ends_with_the_bits_of_one_never_killed(task, request, tmp_path):
    """Killed while saving, between two names of a checkpoint, and while evaluating; tables too are compared."""
    runs = request.getfixturevalue("runs") if task == "lm" else runs_of(task, tmp_path)
    kills = [
        Kill("saving", "os.rename", r"/checkpoint_last\.pt$", 2),
        Kill("evaluating", "os.rename", r"/scores\.jsonl$"),
    ]
    assert runs.killed(kills, "killed") == kills


def test_a_run_asked_to_stop_saves_first_and_goes_on_with_the_same_bits(runs):
    """To the whole group, as schedulers and terminals do, in the middle of an epoch and between two checkpoints."""
    ways = [(7, signal.SIGTERM), (5, signal.SIGINT), (6, signal.SIGHUP)]  # behind so many openings of the history
    asked = [Kill("training", "open", r"/metrics\.jsonl$", number, signal=how) for number, how in ways]
    assert runs.killed(asked, "asked") == asked
    said = re.findall(r"stopped by (.+): saved at update (\d+) of 24; the same command goes on", runs.log("asked"))
    assert [by for by, _ in said] == ["SIGTERM", "Ctrl-C", "SIGHUP, by which a terminal ends"]
    assert all(int(update) % 4 for _, update in said), "a checkpoint was due in any case"
    assert "Traceback" not in runs.log("asked")


def test_the_worker_of_a_killed_process_ends_too(tmp_path):
    """And while it is at work, another process on the same folder says so."""
    runs = Runs("lm", tmp_path, "++fairseq.optimization.max_update=100000")
    checkpoint = runs.folder("orphan") / "checkpoints" / "checkpoint_last.pt"
    cfg = OmegaConf.load(runs.configuration("orphan"))
    with runs.started("orphan", None) as process:
        until(checkpoint.exists)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
        with pytest.raises(UsageError, match="another process is working on"):
            run(cfg)
        process.kill()
        process.join()
        assert children
        until(lambda: not any(map(alive, children)))


def test_a_run_whose_folder_is_removed_leaves_the_next_one_of_that_name_alone(tmp_path):
    runs = Runs("lm", tmp_path, "++fairseq.optimization.max_update=100000")
    folder = runs.folder("removed")
    with runs.started("removed", None) as process:
        until((folder / "checkpoints" / "checkpoint_last.pt").exists)
        folder.rename(tmp_path / "gone")
        folder.mkdir(exist_ok=True)  # what is at work may have been faster
        with locked(folder, wait=False) as ours:
            process.join(LIMIT)
            assert process.exitcode == 2
            assert ours()
    assert not (folder / RECORD).exists()
    said = runs.log("removed")
    assert (
        f"{folder}, or its .lock, was removed while its run was at work; start again" in said
        and "Traceback" not in said
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_members_side_by_side_save_when_the_sweep_is_killed(how, tmp_path):
    """SIGKILL to the process that started them, so that nothing but the system can tell them; Ctrl-C to all of them,
    also to a process that waits for a member, as there are fewer members than processes."""
    words = tiny_words(tmp_path, "++fairseq.optimization.max_update=100000")
    words += ["++fairseq.checkpoint.save_interval_updates=100000", "++fairseq.dataset.validate_interval_updates=100000"]
    command = [sys.executable, str(ROOT / "scripts" / "train.py"), "-m", *words, "seed=1,2"]
    command += ["launcher=joblib", f"hydra.launcher.n_jobs={2 if how == signal.SIGKILL else 3}"]

    def both(file: str, words: str) -> bool:
        texts = [path.read_text(encoding="utf-8") for path in tmp_path.glob(f"results/runs/*/*/*/{file}")]
        return sum(words in text for text in texts) == 2

    with (
        (tmp_path / "said").open("w") as said,
        subprocess.Popen(command, cwd=tmp_path, stderr=said, start_new_session=True) as sweep,
    ):
        try:
            until(lambda: both(HISTORY, '"update": 1,'))
            members = Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children").read_text(encoding="utf-8").split()
        finally:
            if how == signal.SIGINT:
                os.killpg(sweep.pid, how)
                assert sweep.wait(LIMIT) == 128 + how
            sweep.kill()
    until(lambda: both(WORKER_LOG, "saved at update"))
    assert len(members) >= 2
    until(lambda: not any(map(alive, members)))
    assert len(list(tmp_path.glob("results/runs/*/*/*/checkpoints/checkpoint_last.pt"))) == 2
    lines = (tmp_path / "said").read_text(encoding="utf-8").splitlines()
    if how == signal.SIGINT:
        sentence = "train.py: stopped by Ctrl-C: the runs save where they are; the same command goes on"
        assert [line for line in lines if "stopped by" in line] == [sentence]
    assert not any("Traceback" in line for line in lines)


def test_a_second_signal_does_not_disturb_the_saving(monkeypatch):
    calls, before = [], {number: signal.getsignal(number) for number in stopping.ASKED_BY}
    monkeypatch.setattr(stopping, "_came", None)
    try:
        with stopping.when_stopped(lambda: calls.append("asked")):
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert calls == ["asked"]
