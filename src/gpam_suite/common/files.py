"""Files that are there whole or not at all, their checksums, and texts as names of files."""

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from gpam.errors import UsageError

_LONGEST_NAME = 150  # file systems allow 255 bytes; this leaves room for suffixes


def safe_name(text: str) -> str:
    """``text`` as one file name of letters, digits and ``._=,+-``; distinct texts have distinct names.

    Other characters become ``_``, and long names are cut; what is so changed ends in a hash of the whole.
    """
    name = re.sub(r"[^A-Za-z0-9._=,+-]+", "_", str(text)).lstrip(".") or "_"
    if name != text or len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(str(text).encode("utf-8", "surrogatepass")).hexdigest()[:8]
        name = f"{name[: _LONGEST_NAME - 9]}-{digest}"
    return name


def sha256(content: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(content).hexdigest()


def file_sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, content: str | bytes) -> Path:
    """Write ``content`` under a temporary name in the same folder, then rename: readers see all or nothing of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # mkstemp makes files that only their owner can read
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def remove_unfinished(folder: Path, name: str = "*", seconds: float = 0) -> None:
    """Remove what killed processes left of :func:`write_atomically` in ``folder``, of a file of this ``name``. Where
    others may be at work: only what is ``seconds`` old."""
    for temporary in folder.glob(f".{name}.*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            if not seconds or time.time() - temporary.stat().st_mtime >= seconds:  # a clock may be set back
                temporary.unlink()


def refuse_other_page(page: Path, opening: str, what: str) -> None:
    """Raise UsageError where ``page`` is somebody's own and no page of ``what``: it does not begin with ``opening``."""
    if page.is_file() and not page.read_text(encoding="utf-8", errors="replace").startswith(opening):
        raise UsageError(f"{page} is not a page of {what}, and would be written over: move it, or name another folder")


def write_files(files: Mapping[Path, str | bytes]) -> list[Path]:
    """Write each path's content atomically, once all of it has been made; returns the paths.

    What processes that were killed an hour ago left of the same files goes.
    """
    for path in files:
        remove_unfinished(path.parent, path.name, seconds=3600)
    return [write_atomically(path, content) for path, content in files.items()]
