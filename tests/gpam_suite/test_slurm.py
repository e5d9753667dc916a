"""Sweeps as jobs of a real SLURM of one node, with a member that is preempted and one whose node fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runs import tiny_words, until

from gpam_suite.records.folder import read_record
from gpam_suite.report.page import build

ROOT = Path(__file__).resolve().parents[2]
NODE = ROOT / "tests" / "slurm_node.sh"
NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    """The environment of a running SLURM."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"SLURM cannot be started: {', '.join(missing) + ' not installed' if missing else 'not root'}")
    folder = tmp_path_factory.mktemp("slurm")
    started = subprocess.run(["bash", NODE, "start", folder], capture_output=True, text=True, check=False)
    if started.returncode:
        pytest.skip(f"SLURM does not start here: {started.stderr[-500:]}")
    yield {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    subprocess.run(["bash", NODE, "stop", folder], check=True)


def train(base: Path, *words: str) -> list[str]:
    script = [sys.executable, str(ROOT / "scripts" / "train.py")]
    return [*script, *words, *tiny_words(base, f"hydra.sweep.dir={base}/jobs")]


def tell(slurm, *command: str) -> str:
    return subprocess.run(command, env=slurm, capture_output=True, text=True, check=True).stdout


def test_a_preempted_member_and_one_whose_node_failed_are_queued_again(slurm, tmp_path):
    sweep = ["-m", "seed=1,2", "launcher=submitit_slurm", "experiment_name=x"]
    longer = ["optimization.max_update=400", "dataset.validate_interval_updates=50"]
    longer += ["checkpoint.save_interval_updates=50"]
    command = [*train(tmp_path, *sweep), *(f"++fairseq.{word}" for word in longer)]
    log = tmp_path / "sweep.log"
    with log.open("w") as said:
        sweep = subprocess.Popen(command, env=slurm, stdout=said, stderr=said)
    try:
        runs = tmp_path / "results" / "runs" / "x" / "softmax-default"
        until(lambda: len(list(runs.glob("*/checkpoints/checkpoint_last.pt"))) == 2)
        first, second = sorted(tell(slurm, "squeue", "--noheader", "--array", "--format=%i").split())
        tell(slurm, "scancel", "--signal=USR2", first)  # what a job is told before it has to go
        tell(slurm, "scontrol", "requeue", second)  # what SLURM does when a node has failed: nothing is told
        assert sweep.wait(timeout=400) == 0, log.read_text()
    finally:
        sweep.kill()
    for job in (first, second):
        assert "Restarts=1" in tell(slurm, "scontrol", "show", "job", job)
    records = [read_record(folder) for folder in sorted(runs.iterdir())]
    assert [(record["seed"], record["status"], record["updates"]) for record in records] == [
        (1, "finished", 400),
        (2, "finished", 400),
    ]
    build(tmp_path / "results")
    (_, row) = (tmp_path / "results" / "tables" / "x.csv").read_text(encoding="utf-8").splitlines()
    assert row.startswith("x,softmax,default,softmax,finished,,1 2,2,0,")


def test_srun_starts_a_run_on_two_devices(slurm, tmp_path):
    ended = subprocess.run(
        ["srun", "--ntasks=2", *train(tmp_path, "gpu=cpu2")], env=slurm, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (folder,) = (tmp_path / "results" / "runs").glob("*/*/*")
    assert read_record(folder)["world_size"] == 2


def test_submitit_without_a_cluster(tmp_path):
    subprocess.run(train(tmp_path, "-m", "seed=2", "launcher=submitit_local"), check=True, capture_output=True)
    (folder,) = (tmp_path / "results" / "runs").glob("*/*/*")
    record = read_record(folder)
    assert (record["status"], record["seed"]) == ("finished", 2)
    assert record["command"].startswith("python scripts/train.py seed=2 fairseq.optimization.max_update=4 ")


def test_no_slurm_is_one_sentence(tmp_path, monkeypatch, command):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, said = command("train.py", "-m", "launcher=submitit_slurm")
    sentence = "launcher=submitit_slurm needs SLURM, and this machine has no srun; run it where sbatch works"
    assert (code, said.splitlines()) == (2, [f"train.py: {sentence}"])


def test_a_cluster_that_takes_no_jobs_is_one_sentence(tmp_path, monkeypatch, command):
    for name, script in (("srun", ""), ("sbatch", 'echo "sbatch: error: no controller" >&2; exit 1')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    code, _, said = command("train.py", "-m", "launcher=submitit_slurm", f"paths.results={tmp_path}")
    sentence = "SLURM did not take the jobs (sbatch: error: no controller); mend that, and start again"
    assert (code, said.splitlines()[1:]) == (2, [f"train.py: {sentence}"])  # the first is sbatch's own
