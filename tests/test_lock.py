"""requirements.lock: the pins with hashes, nothing of a machine's, and only what an extra asks for."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(text: str) -> dict[str, str]:
    return {canonical(name): version for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)}


def selected(*words: str) -> subprocess.CompletedProcess:
    script = [sys.executable, "-I", "-S", str(ROOT / "scripts" / "lock.py")]
    return subprocess.run([*script, *words], capture_output=True, text=True, check=False)


def test_the_lock_has_every_pin_and_no_other():
    pinned = packages((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    pinned.pop("torch")
    assert packages((ROOT / "requirements.lock").read_text(encoding="utf-8")) == pinned, "stale: make lock"


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


def test_setup_installs_nothing_unhashed_but_torch():
    text = (ROOT / "scripts" / "setup.sh").read_text(encoding="utf-8")
    installs = [line for line in text.splitlines() if line.startswith("install -")]
    assert all("--require-hashes" in line for line in installs[:-2])
    assert installs[-2].endswith("--constraint constraints.txt torch")
    assert "--no-deps" in installs[-1]
