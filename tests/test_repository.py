"""The repository keeps its promises: published pages are what the records give, nothing names a machine."""

import os
import re
import subprocess
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


def test_results_stay_small():
    files = [path for path in tracked() if path.is_relative_to(ROOT / "results")]
    assert len(files) <= 60
    assert sum(path.stat().st_size for path in files) <= 8_000_000


def test_catalogue_is_what_the_registry_says():
    assert PAGE.read_text(encoding="utf-8") == catalogue(), "docs/mechanisms.md is stale: python scripts/catalogue.py"


def test_readme_python_runs():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})


def test_what_is_given_to_the_setup_is_installed_where_an_environment_is_there_already(tmp_path):
    (tmp_path / ".installed").touch()
    os.utime(tmp_path / ".installed", (1 << 32, 1 << 32))  # newer than what it is made from
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-C", ROOT, "--dry-run", "setup", f"VENV={tmp_path}"]
    said = [
        subprocess.run([*command, *given], env=alone, capture_output=True, text=True, check=True).stdout
        for given in ([], ["EXTRAS=test,fuzz"], ["TORCH_INDEX=https://example.org"])
    ]
    assert ["setup.sh" in one for one in said] == [False, True, True]


def test_make_help_lists_every_target_with_its_whole_line():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    shown = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
    assert targets == {line.split()[0] for line in shown.splitlines() if line.startswith("  ")}
    lines = dict(re.findall(r"^([a-z-]+):.*?## (.*)$", makefile, re.MULTILINE))
    assert lines == dict(re.findall(r"^  (\S+) +(.*)$", shown, re.MULTILINE))
