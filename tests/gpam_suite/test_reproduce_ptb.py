"""make reproduce-ptb: what it says before anything is installed; the work itself is that of make evidence."""

import hashlib
import shutil
import subprocess
import sys

import pytest
from data_helpers import node

from gpam_suite.common.places import ROOT


def asked(*words, mirror=None, scripts=ROOT / "scripts"):
    command = [sys.executable, "-S", "-E", str(scripts / "reproduce_ptb.py"), "--announce", *words]  # -S: nothing else
    variables = {"PATH": "/usr/bin:/bin"} | ({"GPAM_MIRROR": str(mirror)} if mirror else {})
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.fixture
def pretended(tmp_path):
    """The scripts, configurations and plan in another place, with a mirror of a made-up treebank and its checksums."""
    for name in ("scripts", "configs", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "configs" / "dataset" / "ptb.yaml"
    text = path.read_text()
    (tmp_path / "mirror" / "ptb").mkdir(parents=True)
    for split, entry in node("ptb")["files"].items():
        content = f"a {split}\n".encode()
        (tmp_path / "mirror" / entry["mirror"]).write_bytes(content)
        text = text.replace(entry["checksums"][0], f"md5:{hashlib.md5(content).hexdigest()}")
    path.write_text(text)
    return tmp_path


def test_it_says_the_cost_of_the_plan(pretended):
    done = asked("--jobs", "4", mirror=pretended / "mirror", scripts=pretended / "scripts")
    assert done.returncode == 0
    assert "34 runs, each 1 hour(s) of one core" in done.stdout
    assert "4 at a time: about 9 hours" in done.stdout


def test_every_file_is_looked_at_before_anything_starts(pretended):
    for split in ("train", "valid", "test"):
        path = pretended / "mirror" / "ptb" / f"ptb.{split}.txt"
        right = path.read_bytes()
        path.write_bytes(right + b"more\n")
        done = asked(mirror=pretended / "mirror", scripts=pretended / "scripts")
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        found = hashlib.md5(right + b"more\n").hexdigest()
        assert f"{path} is not the published file: its MD5 is {found}" in done.stderr
        path.unlink()
        done = asked(f"paths.mirror={pretended / 'mirror'}", scripts=pretended / "scripts")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and f"{path} is missing" in done.stderr
        path.write_bytes(right)


@pytest.mark.parametrize(
    "words, sentence",
    [
        ([], "set GPAM_MIRROR"),
        (["--jobs", "none"], "JOBS: got 'none', wanted a whole number"),
        (["model=softmax"], "unknown option 'model=softmax'"),
        (["paths.results=x"], "or RESULTS=FOLDER"),
    ],
)
def test_mistakes_are_one_sentence(words, sentence):
    done = asked(*words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and sentence in done.stderr
