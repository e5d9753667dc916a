"""Pins that agree; requirements.lock: hashes, what torch allows, no machine's places, extras' own packages; set-up."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

ROOT = Path(__file__).resolve().parents[1]


def packages(text: str) -> dict[str, str]:
    return {canonical(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}


def selected(*words: str) -> subprocess.CompletedProcess:
    script = [sys.executable, "-I", "-S", str(ROOT / "scripts" / "lock.py")]
    return subprocess.run([*script, *words], capture_output=True, text=True, check=False)


def pins() -> dict[str, str]:
    return packages((ROOT / "constraints.txt").read_text(encoding="utf-8"))


def test_every_requirement_is_pinned_for_conda_too():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {Requirement(line).name for line in project["dependencies"] + project["optional-dependencies"]["test"]}
    text = (ROOT / "environment.yml").read_text(encoding="utf-8")
    (pip,) = (entry["pip"] for entry in yaml.safe_load(text)["dependencies"] if isinstance(entry, dict))
    assert {canonical(name) for name in wanted} <= pins().keys()
    assert f"fairseq=={pins()['fairseq']}" in text
    assert pip == ["--constraint constraints.txt", "--editable .[test]"]


def test_the_lock_has_every_pin_and_no_other():
    pinned = pins()
    pinned.pop("torch")
    assert packages((ROOT / "requirements.lock").read_text(encoding="utf-8")) == pinned, "stale: make lock"


def public_torch() -> tuple[str, list[str]]:
    """The version and the requirements of the public index's torch, as `make lock` noted them."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    version, lines = re.search(
        r"^# torch (\S+) of the public index asks for:\n((?:#   .+\n)+)", text, re.MULTILINE
    ).groups()
    return version, [line.removeprefix("#   ") for line in lines.splitlines()]


def refused(pins: dict[str, str], requirements: list[str]) -> list[str]:
    """Those of torch's requirements (extras and CUDA's own aside) that the pins do not allow or do not hold."""
    asked = [item for item in map(Requirement, requirements) if "extra" not in str(item.marker)]
    asked = [item for item in asked if not item.name.startswith(("nvidia-", "cuda-"))]
    return [str(item) for item in asked if not item.specifier.contains(pins.get(canonical(item.name), "none"))]


def test_the_pins_are_what_torch_asks_for():
    version, requirements = public_torch()
    assert version == pins()["torch"], "stale: make lock"
    assert any(line.startswith("triton==") for line in requirements)
    assert refused(pins(), requirements) == []
    assert refused(pins(), importlib.metadata.requires("torch")) == []
    (triton,) = refused(pins() | {"triton": "3.9.0"}, requirements)
    assert triton.startswith("triton==")


def test_every_package_has_hashes_and_no_place():
    text = re.sub(r"^#.*\n", "", (ROOT / "requirements.lock").read_text(encoding="utf-8"), flags=re.MULTILINE)
    stanza = r"[\w.-]+==[\w.!+]+(?: ; [^\\\n]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(f"(?:{stanza})+", text), "a line that is neither a pin nor a hash, such as an address"


def test_an_extra_brings_its_own_packages_only():
    plain, test, all_of_them = (packages(selected(extras).stdout) for extras in ("", "test", "test,triton,fuzz"))
    assert {"pytest", "ruff", "hypothesis"} <= set(test) - set(plain)
    assert set(all_of_them) - set(test) == {"triton", "atheris"}
    assert {"fairseq", "setuptools", "cython", "numpy", "wandb"} <= set(plain)
    assert set(packages(selected("build").stdout)) == {"setuptools", "cython", "numpy"}


@pytest.mark.parametrize("words", [["tests"], ["test;touch x"], ["a", "b"]])
def test_an_unknown_extra_is_one_sentence(words):
    ended = selected(*words)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1


def test_setup_installs_nothing_unhashed_but_torch(setup):
    ended, calls = setup()
    assert ended.returncode == 0
    assert len(calls) == 4
    assert all("--no-deps --require-hashes" in call for call in calls[:-2])
    assert calls[-2].endswith("--constraint constraints.txt torch")
    assert calls[-1].endswith("--no-deps --no-build-isolation --editable .")
    assert "--quiet" not in " ".join(calls)


def test_setup_takes_torch_and_what_it_lacks_from_another_index(setup):
    ended, calls = setup("test", "file:///a place")
    assert ended.returncode == 0
    assert [call for call in calls if "a place" in call] == [calls[-2]]
    assert calls[-2].endswith("--no-warn-conflicts --constraint constraints.txt --index-url file:///a place torch")
    assert "--no-deps" not in calls[-2]  # a build for GPUs has libraries of its own


def test_setup_ends_with_what_pip_says(setup):
    ended, calls = setup(sentence="ERROR: ResolutionImpossible: triton")
    assert ended.returncode == 1
    assert len(calls) == 1
    said = ended.stderr.splitlines()
    assert said[0] == "ERROR: ResolutionImpossible: triton"
    assert said[1].startswith("setup: pip failed")


@pytest.fixture
def setup(tmp_path):
    """scripts/setup.sh with a pip that only notes how it is called, or fails with a sentence; and those calls."""

    def called(*settings: str, sentence: str = "") -> tuple[subprocess.CompletedProcess, list[str]]:
        (tmp_path / "venv" / "bin").mkdir(parents=True)
        python = tmp_path / "venv" / "bin" / "python"
        fails = f"echo '{sentence}'; exit 1" if sentence else "exit 0"
        python.write_text(f'#!/bin/sh\necho "$*" >>"$0.calls"\n{fails}\n', encoding="utf-8")
        python.chmod(0o755)
        python.with_name("pip").touch(0o755)
        script = ["bash", "scripts/setup.sh", sys.executable, str(tmp_path / "venv"), *settings]
        ended = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
        calls = python.with_name("python.calls").read_text(encoding="utf-8").splitlines()
        return ended, [call for call in calls if call.startswith("-m pip")]

    return called


def test_the_environment_of_another_copy_is_left_alone(tmp_path):
    (packages := tmp_path / "venv/lib/python3.11/site-packages").mkdir(parents=True)
    (packages / "__editable__.gpam_suite-0.1.0.pth").write_text(str(tmp_path))
    script = ["bash", "scripts/setup.sh", sys.executable, str(tmp_path / "venv")]
    ended = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == f"setup: {tmp_path}/venv is the environment of another copy, {tmp_path}; give another VENV\n"
    assert not (tmp_path / "venv/setup.log").exists()
