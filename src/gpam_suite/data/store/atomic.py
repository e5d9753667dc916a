"""Folders that are there whole or not at all: made under another name, renamed when complete."""

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from gpam.errors import UsageError


def unwritable(folder: Path, error: OSError) -> UsageError:
    """The mistake of a ``paths.data`` that cannot be written."""
    return UsageError(f"paths.data: {folder} cannot be written ({error.strerror}); give another folder")


@contextlib.contextmanager
def unfinished(root: Path, name: str) -> Iterator[Path]:
    """A new folder below ``root`` to work in, removed in the end unless it was renamed.

    Its name cannot be taken for a finished one. It is locked as long as the process lives, so that
    :func:`remove_abandoned` knows those of killed processes.
    """
    folder = root / f".{name}-{uuid.uuid4().hex[:8]}.tmp"
    lock = _made_and_locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _made_and_locked(folder: Path) -> int:
    """The lock of the new ``folder``; made again where another process took it for abandoned before it was locked."""
    while True:
        try:
            folder.mkdir()  # not tempfile's, which nobody else could read
        except OSError as error:
            raise unwritable(folder.parent, error) from error
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                os.close(lock)
                raise UsageError(
                    f"{folder.parent} lies on a file system without locks ({error.strerror}); set paths.data to another"
                ) from None
            if folder.exists():
                return lock
            os.close(lock)


def remove_abandoned(root: Path) -> None:
    """Remove the unfinished folders below ``root`` whose process is gone."""
    for folder in root.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused where its process is at work
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def publish(temporary: Path, folder: Path, finished: Callable[[Path], bool]) -> bool:
    """Rename the complete ``temporary`` to ``folder`` unless that is ``finished``: another process's result stays.

    Of several that found the same folder damaged, one at a time looks again, so that only a damaged one is removed.

    Returns:
        Whether it was this one.
    """
    lock = os.open(folder.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            if finished(folder):
                return False
            with unfinished(folder.parent, f"damaged-{folder.name}") as damaged:
                os.replace(folder, damaged)
        os.rename(temporary, folder)
    finally:
        os.close(lock)
    return True


def link_or_copy(source: Path, target: Path) -> None:
    """``source`` under another name, without a copy where the file system has links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
