"""C libraries that set-up builds into the Python environment, for code that can do without them. Needs no torch."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")


def folder() -> Path:
    """Where they lie: in the Python environment."""
    return Path(sys.prefix) / "lib" / "gpam"


def build(source: str, target: Path, *options: str) -> str | None:
    """Compile ``source`` to the shared library ``target``, which is there whole or not at all.

    Returns None, or why there is none: no compiler, what the compiler says last, a folder that cannot be written.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return "no C compiler"
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-x", "c", *options, "-shared", "-fPIC", "-o", str(part), "-"]
        subprocess.run(command, input=source, text=True, capture_output=True, check=True)
        sum_of_part = _sum_of(part)
        sum_of_part.write_text(_sha256(part), encoding="ascii")
        part.replace(target)
        sum_of_part.replace(_sum_of(target))
    except subprocess.CalledProcessError as error:
        part.unlink(missing_ok=True)
        return f"{compiler} failed ({(error.stderr.strip().splitlines() or ['it said nothing'])[-1]})"
    except OSError as error:
        return f"{target} cannot be written ({error.strerror})"
    return None


def is_whole(library: Path) -> bool:
    """Whether ``library`` is, byte by byte, what :func:`build` made; not known, and True, of one without its sum."""
    try:
        return _sum_of(library).read_bytes() == _sha256(library).encode()
    except FileNotFoundError:
        return True


def _sum_of(library: Path) -> Path:
    return library.with_name(f"{library.name}.sha256")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
