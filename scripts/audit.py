"""What is installed against what was locked, offline; then the lock against a database of known weaknesses.

The first half needs no network: every package has its pinned version, nothing unpinned is there, and every installed
file has the hash that its package says. The second asks PyPI's database through pip-audit, in an environment of its
own.
"""

import argparse
import base64
import csv
import hashlib
import importlib.metadata
import subprocess
import sys
import tempfile
import venv
from functools import cache
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
AUDIT = "pip-audit==2.10.1"
NOT_LOCKED = {"pip", "gpam-suite", "torch"}  # the interpreter's, this one, and torch, by its own version
OF_TORCH = ("nvidia-", "cuda-")
FAILED = 1


def main() -> int:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    wrong = [sentence for package in importlib.metadata.distributions() for sentence in complaints(package)]
    for sentence in sorted(wrong):
        print(f"audit: {sentence}", file=sys.stderr)
    if wrong:
        return FAILED
    print("audit: what is installed is what was locked, byte for byte", flush=True)
    return weaknesses()


def complaints(package: importlib.metadata.Distribution) -> list[str]:
    """What is wrong with an installed package: its version, or one of its files."""
    if not (package.metadata and package.metadata["Name"]):
        return [f"{package.locate_file('')}: a package without a name; remove the environment and make setup"]
    name, found = canonicalize_name(package.metadata["Name"]), []
    if name not in NOT_LOCKED and not name.startswith(OF_TORCH) and pins().get(name) != package.version:
        found.append(f"{name} {package.version} is installed, the pin is {pins().get(name, 'none')}; make setup")
    rows = list(csv.reader((package.read_text("RECORD") or "").splitlines()))
    if not rows or any(len(row) != 3 for row in rows):
        return [*found, f"{name} has no whole list of its files; remove the environment and make setup"]
    for file, hashed, _ in rows:
        path = Path(package.locate_file(file))
        if hashed and (not path.is_file() or _digest(path) != hashed.partition("=")[2]):
            found.append(f"{name}: {file} is not the file that was installed; remove the environment and make setup")
    return found


@cache
def pins() -> dict[str, str]:
    """Package to its pinned version; read once, as every package asks."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = (line.partition("==") for line in lines)
    return {canonicalize_name(name): version for name, _, version in found if version}


def _digest(path: Path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def weaknesses() -> int:
    """pip-audit on requirements.lock; a package that the database does not know, or was not asked for, is a failure."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        tools = [python, "-m", "pip", "install", "--quiet", AUDIT]
        if subprocess.run(tools, check=False).returncode:  # which has said why
            print(f"audit: {AUDIT} cannot be installed, so no database was asked", file=sys.stderr)
            return FAILED
        asked = [python, "-m", "pip_audit", "--strict", "--disable-pip", "--no-deps", "--progress-spinner", "off"]
        ended = subprocess.run(
            [*asked, "--requirement", ROOT / "requirements.lock"], capture_output=True, text=True, check=False
        )
    print(ended.stdout, end="")
    lines = ended.stderr.strip().splitlines() or [""]
    if ended.returncode:
        print(f"audit: weaknesses are found, or not asked for where no database answers ({lines[-1]})", file=sys.stderr)
    return FAILED if ended.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
