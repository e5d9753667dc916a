"""The experiment plan: every command line of it composes, the page names every part, and a part is done as it says."""

import subprocess
import sys

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from gpam.errors import UsageError
from gpam_suite import evidence
from gpam_suite.command_line import RunFailed
from gpam_suite.configuration import CONFIGS, check, identity
from gpam_suite.environment import ROOT
from gpam_suite.records import config_hash

CONFIG = OmegaConf.load(CONFIGS / "evidence.yaml")
PLAN = evidence.unresolved(CONFIG)


def members(line):
    """The overrides of every member of a multirun."""
    chosen = [[]]
    for override in OverridesParser.create().parse_overrides(line.split()):
        values = (
            list(override.sweep_string_iterator()) if override.is_sweep_override() else [override.get_value_string()]
        )
        chosen = [[*one, f"{override.key_or_group}={value}"] for one in chosen for value in values]
    return chosen


@pytest.mark.parametrize("part", PLAN)
def test_every_run_of_the_plan_composes(part):
    names, hashes = set(), set()
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        runs = [one for line in PLAN[part]["multiruns"] for one in members(line)]
        for number, overrides in enumerate(runs):
            cfg = compose("train", overrides=overrides)
            if number % 7 == 0:  # fairseq's side of it takes a while
                check(cfg)
            names.add(cfg.experiment_name)
            hashes.add(config_hash(identity(cfg)))
    assert len(hashes) == len(runs)
    sizes = (ROOT / "docs" / "experiment-plan.md").read_text(encoding="utf-8").partition("## Sizes")[2].splitlines()
    row = next(line for line in sizes if line.startswith("|") and f"`{part}`" in line)
    counts = [cell.strip() for cell in row.split("|")][5].split("+")
    assert len(runs) in map(int, counts)
    assert all(name.startswith("tune_") for name in names) == (PLAN[part].get("folder") == "tuning")


def called(monkeypatch, codes):
    calls = []

    def run(command, *, preexec_fn, **_):  # members are told when the plan is stopped
        calls.append(command[1:])
        return subprocess.CompletedProcess(command, codes.get(command[1].rpartition("/")[2], 0))

    monkeypatch.setattr(evidence.subprocess, "run", run)
    return calls


def config(**changes):
    places = {"results": "somewhere", "data": "data", "mirror": None, "offline": True}
    return OmegaConf.merge(OmegaConf.create(OmegaConf.to_container(CONFIG)), {"paths": places, **changes})


def test_a_part_trains_then_looks(monkeypatch):
    calls = called(monkeypatch, {})
    evidence.evidence(config(parts=["tune_nmt", "lambda_nmt"], jobs=2))
    scripts = [call[0].rpartition("/")[2] for call in calls]
    assert scripts == ["train.py", "train.py", "train.py", "analyse.py"]  # tuning is not looked into
    assert "paths.results=somewhere/tuning" in calls[0]
    assert "paths.results=somewhere" in calls[1] and "hydra.launcher.n_jobs=2" in calls[1]
    assert "results=somewhere" in calls[3]
    assert all({"paths.data=data", "paths.offline=True"} <= set(call) for call in calls)  # as it was asked


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"parts": ["tune_nm"]}, "did you mean 'tune_nmt'"),
        ({"jobs": 0}, "jobs: got '0'"),
        ({"jobs": "two"}, "jobs: got"),
    ],
)
def test_mistakes_are_told(monkeypatch, changes, sentence):
    calls = called(monkeypatch, {})
    with pytest.raises(UsageError, match=sentence):
        evidence.evidence(config(**changes))
    assert not calls


def test_a_failed_member_does_not_end_the_plan(monkeypatch):
    calls = called(monkeypatch, {"train.py": 1})
    with pytest.raises(RunFailed):
        evidence.evidence(config(parts=["tune_nmt", "tune_lm"]))
    assert len(calls) == 2
    calls = called(monkeypatch, {"train.py": 2})
    with pytest.raises(UsageError, match="refused"):
        evidence.evidence(config(parts=["tune_nmt", "tune_lm"]))
    assert len(calls) == 1


def test_the_command_says_what_parts_there_are():
    words = [sys.executable, str(ROOT / "scripts" / "evidence.py"), "parts=[nothing]"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "wanted some of tune_nmt" in done.stderr
