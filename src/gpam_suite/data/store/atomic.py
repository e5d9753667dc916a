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
def locked(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Keep other processes that lock ``folder`` out; the lock ends with the process, however that ends.

    Raises:
        BlockingIOError: another process has it, and ``wait`` is false.
        UsageError: the file system has no locks.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError as error:
            raise UsageError(
                f"{folder} lies on a file system without locks ({error.strerror}); set paths.data to another"
            ) from None
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def unfinished(root: Path, name: str) -> Iterator[Path]:
    """A new folder below ``root`` to work in, removed in the end unless it was renamed.

    Its name cannot be taken for a finished one. It is locked as long as the process lives, so that
    :func:`remove_abandoned` knows those of killed processes.
    """
    folder = root / f".{name}-{uuid.uuid4().hex[:8]}.tmp"
    with contextlib.ExitStack() as stack:
        with locked(root):  # so that nobody takes it for abandoned before it is locked
            try:
                folder.mkdir()  # not tempfile's, which nobody else could read
            except OSError as error:
                raise unwritable(root, error) from error
            stack.enter_context(locked(folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(root: Path) -> None:
    """Remove the unfinished folders below ``root`` whose process is gone."""
    for folder in root.glob(".*.tmp"):
        with contextlib.suppress(OSError), locked(root), locked(folder, wait=False):
            shutil.rmtree(folder, ignore_errors=True)


def publish(temporary: Path, folder: Path, finished: Callable[[Path], bool]) -> bool:
    """Rename the complete ``temporary`` to ``folder`` unless that is ``finished``: another process's result stays.

    Of several that found the same folder damaged, one at a time looks again, so that only a damaged one is removed.

    Returns:
        Whether it was this one.
    """
    with locked(folder.parent):
        if folder.exists():
            if finished(folder):
                return False
            damaged = folder.with_name(f".damaged-{folder.name}-{uuid.uuid4().hex[:8]}.tmp")
            os.rename(folder, damaged)
            shutil.rmtree(damaged, ignore_errors=True)
        os.rename(temporary, folder)
    return True
