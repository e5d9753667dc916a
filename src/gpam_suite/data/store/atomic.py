"""Folders that are there whole or not at all: made under another name, renamed when complete.

Each has a file that says what it is, its *summary*, with the checksums of its ``files`` and of itself.
"""

import contextlib
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.files import file_sha256
from gpam_suite.common.lock import locked
from gpam_suite.common.strict_json import read_summed, summed

log = logging.getLogger(__name__)


def described(folder: Path) -> dict[str, Any]:
    """Every file in ``folder`` with its checksum and size, as summaries keep them."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(folder)): {"sha256": file_sha256(path), "bytes": path.stat().st_size} for path in paths
    }


def unchanged(folder: Path, summary: str) -> dict[str, Any] | None:
    """What the ``summary`` of a finished ``folder`` says.

    None where the folder is not there, or not byte for byte what was written: it has to be made again.
    """
    if not folder.exists():
        return None
    try:
        found = read_summed((folder / summary).read_text(encoding="utf-8"))
        spoilt = [name for name, of in found["files"].items() if file_sha256(folder / name) != of["sha256"]]
        why = f"{', '.join(spoilt)} changed after it was made" if spoilt else None
    except (OSError, ValueError) as error:
        why = f"{summary}: {error}"
    if why:
        log.warning("%s is made again: %s", folder, why)
        return None
    return found


def make(folder: Path, summary: str, work: Callable[[Path], Mapping[str, Any]]) -> dict[str, Any]:
    """Have ``folder`` filled by ``work``, which returns what its ``summary`` says; returns that as it is read again."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with unfinished(folder.parent, folder.name) as temporary:
        text = summed(work(temporary), indent=1)
        (temporary / summary).write_text(text, encoding="utf-8")
        publish(temporary, folder, summary)
    return read_summed(text)


def unwritable(folder: Path, error: OSError) -> UsageError:
    """The mistake of a ``paths.data`` that cannot be written."""
    return UsageError(f"paths.data: {folder} cannot be written ({error.strerror}); give another folder")


@contextlib.contextmanager
def unfinished(root: Path, name: str) -> Iterator[Path]:
    """A new folder below ``root`` to work in, removed in the end unless it was renamed.

    The name of the folder that it is in cannot be taken for a finished one. That is locked as long as the process
    lives, so that :func:`remove_abandoned` knows those of killed processes.
    """
    folder = root / f".{name}-{uuid.uuid4().hex[:8]}.tmp"
    try:
        with contextlib.ExitStack() as stack:
            try:
                with locked(root):  # so that nobody takes it for abandoned before it is locked
                    folder.mkdir()  # not tempfile's, which nobody else could read
                    stack.enter_context(locked(folder))
            except OSError as error:
                raise unwritable(root, error) from error
            (made := folder / "made").mkdir()
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # no longer locked: NFS keeps a file that is open


def remove_abandoned(root: Path) -> None:
    """Remove the unfinished folders below ``root`` whose process is gone."""
    for folder in root.glob(f".*-{'[0-9a-f]' * 8}.tmp"):  # as :func:`unfinished` and :func:`publish` name them
        with contextlib.suppress(OSError, UsageError), locked(root):
            with locked(folder, wait=False):
                pass
            shutil.rmtree(folder, ignore_errors=True)


def publish(temporary: Path, folder: Path, summary: str) -> None:
    """Rename the complete ``temporary`` to ``folder`` unless that is there and whole: another process's result stays.

    Of several that found the same folder damaged, one at a time looks again, so that only a damaged one is removed.
    """
    with locked(folder.parent):
        if unchanged(folder, summary):
            return
        if folder.exists():
            damaged = folder.with_name(f".damaged-{folder.name}-{uuid.uuid4().hex[:8]}.tmp")
            os.rename(folder, damaged)
            shutil.rmtree(damaged, ignore_errors=True)
        os.rename(temporary, folder)
