"""One process at a time in a folder."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from gpam.errors import UsageError


@contextlib.contextmanager
def locked(folder: Path, *, wait: bool = True) -> Iterator[Callable[[], bool]]:
    """Keep other processes that lock ``folder`` out; the lock ends with the process, however that ends.

    Gives a function that tells whether it still does: a folder that is removed takes its lock with it. That is the
    lock of ``folder/.lock``: NFS locks only what is open for writing, which a folder cannot be.

    Raises:
        OSError: the folder is not there, or cannot be written.
        UsageError: another process has it, and ``wait`` is false; the lock is a link; the file system has no locks.
    """
    file = folder / ".lock"
    descriptor = _open_and_locked(file, wait)
    while not (os.fstat(descriptor).st_nlink or _is(descriptor, file)):  # it was removed before it was ours
        os.close(descriptor)
        descriptor = _open_and_locked(file, wait)
    try:
        knows = _is(descriptor, file)  # some file systems number an open file otherwise
        yield lambda: not knows or _is(descriptor, file)
    finally:
        os.close(descriptor)


def _open_and_locked(file: Path, wait: bool) -> int:
    """The descriptor of ``file``, which is made where it is not there."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UsageError(f"{file} is a link, wanted a plain file; remove it") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process is working on {file.parent}; wait for it, or stop it, and try again"
            ) from None
        except OSError as error:
            raise UsageError(
                f"{file.parent} lies on a file system without locks ({error.strerror}), so two processes could write "
                "there at once; set paths.data and paths.results to another"
            ) from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is(descriptor: int, file: Path) -> bool:
    """Whether the file that is open is the one of that name; where a disk cannot tell for a moment, it is."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
    except OSError:
        return True
