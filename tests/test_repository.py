"""The repository keeps its promises: published pages are what the records give, nothing names a machine."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpam_suite.tools.catalogue import PAGE, catalogue

ROOT = Path(__file__).resolve().parents[1]


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listed.stdout.splitlines()]


def test_no_file_names_a_place_on_a_machine():
    place = re.compile(rb"/(?:home|root|work|tmp/pilot)/\w")
    naming = [
        path for path in tracked() if path.is_file() and path != Path(__file__) and place.search(path.read_bytes())
    ]
    assert naming == []


def test_catalogue_is_what_the_registry_says():
    assert PAGE.read_text(encoding="utf-8") == catalogue(), "docs/mechanisms.md is stale: python scripts/catalogue.py"


def test_readme_python_runs():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})


def test_make_help_lists_every_target_with_its_whole_line():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    shown = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    assert targets == {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    lines = dict(re.findall(r"^([a-z-]+):.*?## (.*)$", makefile, re.MULTILINE))
    assert lines == dict(re.findall(r"^  (\S+) +(.*)$", shown, re.MULTILINE))


def reproduce(*words: str) -> subprocess.CompletedProcess:
    """With Python's own library only: it speaks before anything is installed."""
    script = [sys.executable, "-I", "-S", str(ROOT / "scripts" / "reproduce.py")]
    return subprocess.run([*script, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--scale", "lptop", "lm"], "unknown SCALE 'lptop'; did you mean 'laptop'?"),
        (["--scale", "paper", "nmt"], "SCALE=paper needs"),
        (["--scale", "laptop", "--models", "softmx", "lm"], "did you mean 'softmax'?"),
        (["--scale", "laptop", "--seeds", "1,x", "lm"], "SEEDS: got 'x'"),
        (["--scale", "laptop", "--jobs", "0", "lm"], "JOBS: got '0'"),
    ],
)
def test_reproduce_refuses_with_one_sentence(words, sentence):
    ended = reproduce(*words)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_reproduce_announces_what_it_would_do():
    ended = reproduce("--scale", "laptop", "--announce", "lm")
    assert ended.returncode == 0
    (line,) = ended.stdout.splitlines()
    assert line.startswith("lm_laptop: language modelling, SCALE=laptop")
    assert "softmax and dagpam, 3 seed(s)" in line
