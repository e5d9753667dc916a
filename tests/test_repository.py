"""The repository keeps its promises: pins agree, published pages are what the records give, nothing names a machine."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from gpam_suite.tools.catalogue import PAGE, catalogue

ROOT = Path(__file__).resolve().parents[1]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    return {name.lower().replace("_", "-"): version for name, version in found.items()}


def requirements() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {
        re.match(r"[\w.-]+", line)[0].lower()
        for line in [*project["dependencies"], *project["optional-dependencies"]["test"]]
    }


def test_conda_gives_the_same_pins():
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    (pip,) = (entry["pip"] for entry in yaml.safe_load(text)["dependencies"] if isinstance(entry, dict))
    conda = dict(line.lower().split("==") for line in pip if "==" in line)
    assert set(conda) == requirements()
    assert conda == {name: pins()[name] for name in conda}
    assert f"fairseq=={pins()['fairseq']}" in text
    assert "--constraint constraints.txt" in pip


def test_every_requirement_is_pinned():
    assert requirements() | {"fairseq"} <= set(pins())


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
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_make_help_lists_every_target_with_its_whole_line():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    shown = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    assert targets == {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    lines = dict(re.findall(r"^([a-z-]+):.*?## (.*)$", makefile, re.MULTILINE))
    assert lines == dict(re.findall(r"^  (\S+) +(.*)$", shown, re.MULTILINE))


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
    """With Python's own library only: it speaks before anything is installed."""
    script = [sys.executable, "-I", "-S", str(ROOT / "scripts" / "reproduce.py")]
    ended = subprocess.run([*script, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_reproduce_announces_what_it_would_do():
    script = [
        sys.executable,
        "-I",
        "-S",
        str(ROOT / "scripts" / "reproduce.py"),
        "--scale",
        "laptop",
        "--announce",
        "lm",
    ]
    ended = subprocess.run(script, capture_output=True, text=True, check=True)
    (line,) = ended.stdout.splitlines()
    assert line.startswith("lm_laptop: language modelling, SCALE=laptop")
    assert "softmax and dagpam, 3 seed(s)" in line
