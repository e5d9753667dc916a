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
HEAD = f"""# Made by `make lock` from constraints.txt: every package with the SHA-256 of the files that there are of it.
# {BY_VERSION} is missing on purpose: scripts/setup.sh installs it by its version, of whatever build is supplied.
"""
ASKS = f"""#
# {BY_VERSION} {{version}} of the public index asks for:
"""
FAILED, USAGE_ERROR = 1, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("extras", nargs="*", help="names separated by commas, or build; none: write the lock")
    given = parser.parse_args().extras
    if len(given) > 1:
        print(f"lock: got {' '.join(given)}, wanted at most a list of extras", file=sys.stderr)
        return USAGE_ERROR
    if not given:
        try:
            LOCK.write_text(locked(), encoding="utf-8")
        except subprocess.CalledProcessError as error:
            print(f"lock: nothing is written\n{error.stderr.strip()}", file=sys.stderr)
            return FAILED
        print(LOCK.relative_to(ROOT))
        return 0
    words = [word.strip() for word in given[0].split(",") if word.strip()]
    if words == ["build"]:
        print("".join(text for name, (_, text) in stanzas().items() if name in BUILD), end="")
        return 0
    for word in words:
        if word not in extras():
            print(f"EXTRAS: no extra '{word}' (wanted some of {', '.join(extras())})", file=sys.stderr)
            return USAGE_ERROR
    print("".join(text for only, text in stanzas().values() if not only or only & set(words)), end="")
    return 0


def project() -> dict:
    return tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]


def extras() -> list[str]:
    """The optional parts of the project."""
    return list(project()["optional-dependencies"])


def requirements(extra: str | None) -> list[str]:
    """What pyproject.toml asks for, torch too."""
    return [*project()["dependencies"], *(project()["optional-dependencies"][extra] if extra else [])]


def stanzas() -> dict[str, tuple[set[str], str]]:
    """Package to the extras that alone want it (none: everybody does) and its lines in requirements.lock."""
    found, only, name = {}, set(), ""
    for line in LOCK.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith(ONLY):
            only = set(line.removeprefix(ONLY).strip().split(", "))
        elif match := re.match(r"([\w.-]+)==", line):
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
        subprocess.run([python, "-m", "pip", "install", "--quiet", UV, PIP], check=True)
        pins, asked = Path(folder) / "pins.txt", Path(folder) / "asked.txt"
        lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines(keepends=True)
        pins.write_text("".join(line for line in lines if not line.startswith(f"{BY_VERSION}==")), encoding="utf-8")

        def compiled(*options: str | Path, version: str = PYTHONS[0]) -> str:
            words = ["uv", "--no-config", "pip", "compile", "--quiet", "--universal", "--no-header", "--no-annotate"]
            return output([python, "-m", *words, "--python-version", version, *options])

        def closure(extra: str | None) -> set[str]:
            """The packages that the project, or the project with an extra, comes down to, without torch's own."""
            wanted = [line for line in requirements(extra) if re.match(r"[\w.-]+", line)[0] != BY_VERSION]
            asked.write_text("\n".join(wanted) + "\n", encoding="utf-8")
            return names(compiled("--constraint", pins, asked))

        for version in PYTHONS:
            for extra in (None, *extras()):
                asked.write_text("\n".join(requirements(extra)) + "\n", encoding="utf-8")
                compiled("--constraint", CONSTRAINTS, asked, version=version)
        text = compiled("--no-deps", "--generate-hashes", pins)
        base = closure(None)
        only_for = {extra: closure(extra) - base for extra in extras()}
        parts = [HEAD, torch_asks_for(python)]
    for line in text.splitlines(keepends=True):
        if match := re.match(r"([\w.-]+)==", line):
            only = [extra for extra, more in only_for.items() if match[1] in more]
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


def names(text: str) -> set[str]:
    return set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))


if __name__ == "__main__":
    sys.exit(main())
