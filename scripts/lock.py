"""requirements.lock: every pinned package with the hashes of its files. lock.py writes it, lock.py EXTRA,... reads it.

`lock.py` alone asks the package index and writes the file from constraints.txt. `lock.py test,triton` prints what pip
installs for these extras of pyproject.toml, and `lock.py build` what the others need to be built. torch is not in it:
its files differ from build to build of one version (CPU, CUDA releases), so scripts/setup.sh installs it by version.
The pins must hold together with the wheel of torch that the public index serves, whatever this machine has at hand:
that is asked before anything is written, and what the wheel asks for is noted at the head of the file.

Only the standard library is imported here, as nothing is installed yet when it is needed.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK, CONSTRAINTS, PROJECT = ROOT / "requirements.lock", ROOT / "constraints.txt", ROOT / "pyproject.toml"
UV, PIP = "uv==0.13.9", "pip==26.3"
PYTHONS = ("3.11", "3.12")
BY_VERSION = "torch"
BUILD = ("setuptools", "cython", "numpy")
ONLY = "# only for: "
PINNED = re.compile(r"^([\w.-]+)==", re.MULTILINE)
HEAD = f"""# Made by `make lock` from constraints.txt: every package with the SHA-256 of the files that there are of it.
# {BY_VERSION} is missing on purpose: scripts/setup.sh installs it by its version, of whatever build is supplied.
"""
ASKS = f"""#
# {BY_VERSION} {{version}} of the public index asks for:
"""
FAILED, USAGE_ERROR = 1, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extras", nargs="?", help="names separated by commas, or build; not given: write the lock")
    given, more = parser.parse_known_args()
    if more:
        print(f"lock: got also {' '.join(more)}, wanted at most a list of extras", file=sys.stderr)
        return USAGE_ERROR
    if given.extras is None:
        try:
            LOCK.write_text(locked(), encoding="utf-8")
        except subprocess.CalledProcessError as error:
            print(f"lock: nothing is written\n{error.stderr.strip()}", file=sys.stderr)
            return FAILED
        print(LOCK.relative_to(ROOT))
        return 0
    words = {word.strip() for word in given.extras.split(",") if word.strip()}
    if words == {"build"}:
        print("".join(text for name, (_, text) in stanzas().items() if name in BUILD), end="")
        return 0
    extras = [extra for extra in requirements() if extra]
    if unknown := sorted(words - set(extras)):
        print(f"EXTRAS: no extra '{unknown[0]}' (wanted some of {', '.join(extras)})", file=sys.stderr)
        return USAGE_ERROR
    print("".join(text for only, text in stanzas().values() if not only or only & words), end="")
    return 0


def requirements() -> dict[str | None, list[str]]:
    """What pyproject.toml asks for, torch too: by itself (None), and with each of its extras."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    base = project["dependencies"]
    return {None: base} | {extra: base + more for extra, more in project["optional-dependencies"].items()}


def stanzas() -> dict[str, tuple[set[str], str]]:
    """Package to the extras that alone want it (none: everybody does) and its lines in requirements.lock."""
    found, only, name = {}, set(), ""
    for line in LOCK.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith(ONLY):
            only = set(line.removeprefix(ONLY).strip().split(", "))
        elif match := PINNED.match(line):
            name = match[1]
            found[name], only = (only, line), set()
        elif line.startswith(" "):
            found[name] = (found[name][0], found[name][1] + line)
    return found


def locked() -> str:
    """The text of requirements.lock."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        output([python, "-m", "pip", "install", "--quiet", UV, PIP])
        pins, asked = Path(folder) / "pins.txt", Path(folder) / "asked.txt"
        lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
        pins.write_text("\n".join(line for line in lines if not line.startswith(f"{BY_VERSION}==")), encoding="utf-8")

        def compiled(source: Path, *options: str | Path, version: str = PYTHONS[0]) -> str:
            words = ["uv", "--no-config", "pip", "compile", "--quiet", "--universal", "--no-header", "--no-annotate"]
            return output([python, "-m", *words, "--python-version", version, *options, source])

        closures = {}  # of the project, and with each extra, the packages that it comes down to, without torch's own
        for extra, wanted in requirements().items():
            asked.write_text("\n".join(wanted), encoding="utf-8")
            for version in PYTHONS:
                compiled(asked, "--constraint", CONSTRAINTS, version=version)  # fails where the pins do not hold
            rest = [line for line in wanted if re.match(r"[\w.-]+", line)[0] != BY_VERSION]
            asked.write_text("\n".join(rest), encoding="utf-8")
            closures[extra] = set(PINNED.findall(compiled(asked, "--constraint", pins)))
        text = compiled(pins, "--no-deps", "--generate-hashes")
        parts = [HEAD, torch_asks_for(python)]
    for line in text.splitlines(keepends=True):
        if match := PINNED.match(line):
            only = [extra for extra, found in closures.items() if match[1] in found - closures[None]]
            parts += [f"{ONLY}{', '.join(only)}\n"] if only else []
        parts.append(line)
    return "".join(parts)


def torch_asks_for(python: Path) -> str:
    """Comment lines: the requirements in the metadata of the public wheel, which pip reads without downloading it."""
    pin = re.search(rf"^{BY_VERSION}==\S+", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)[0]
    options = ["--dry-run", "--ignore-installed", "--no-deps", "--no-cache-dir", "--use-feature=fast-deps", "--quiet"]
    report = json.loads(output([python, "-m", "pip", "install", *options, "--report", "-", pin]))
    (metadata,) = (package["metadata"] for package in report["install"])
    return ASKS.format(version=metadata["version"]) + "".join(f"#   {line}\n" for line in metadata["requires_dist"])


def output(command: list) -> str:
    """What a command prints that knows the public index and none of this machine's own wheels."""
    public = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, **public})
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
