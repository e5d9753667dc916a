"""gpam by itself: the wheel of packages/gpam, installed where there is no suite."""

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
OLDEST = (3, 10)
STEP = """
import importlib.util, sys
import torch
import gpam
from gpam.attention import Site, build, names

assert gpam.__file__.startswith(sys.argv[1]), gpam.__file__
assert importlib.util.find_spec("gpam_suite") is importlib.util.find_spec("gpam_fairseq") is None
q = torch.randn(1, 2, 5, 4, requires_grad=True)
for name in names():
    mechanism = build(name, Site(8, 2, layers=3))
    mechanism(q, q, q, query_input=torch.randn(1, 5, 8))[0].sum().backward()
foreign = {name.partition(".")[0] for name in sys.modules} & {"fairseq", "hydra", "omegaconf", "transformers", "wandb"}
assert not foreign, foreign
print(len(names()))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from a copy: building leaves its own files beside the code."""
    copy = tmp_path_factory.mktemp("repository")
    for folder in ("src/gpam", "packages"):
        leftovers = shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
        shutil.copytree(ROOT / folder, copy / folder, ignore=leftovers)
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(copy)!r})"
    command = [sys.executable, "-c", build]
    done = subprocess.run(command, cwd=copy / "packages/gpam", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = copy.glob("gpam-*.whl")
    return wheel


def test_the_wheel_holds_gpam_whole_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (about,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(about).decode())
    files = {path for path in (ROOT / "src/gpam").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert held == {path.relative_to(ROOT / "src").as_posix() for path in files}
    assert "gpam/py.typed" in held
    assert metadata["Name"] == "gpam"
    assert metadata.get_all("Requires-Dist") == ["torch>=2.6"]
    assert metadata["Requires-Python"] == f">={OLDEST[0]}.{OLDEST[1]}"


def test_it_works_where_the_suite_is_not(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    # torch alone is lent by this environment: without its start-up files (-S) no editable install of the suite comes.
    lent = {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(torch.__file__).parents[1]}"}
    command = [sys.executable, "-S", "-c", STEP, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=lent, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


def test_its_syntax_is_that_of_the_oldest_python():
    words = ["check", "--isolated", "--no-cache", "--select=F", f"--target-version=py{OLDEST[0]}{OLDEST[1]}"]
    command = [sys.executable, "-m", "ruff", *words, "src/gpam"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert checked.returncode == 0, checked.stdout
