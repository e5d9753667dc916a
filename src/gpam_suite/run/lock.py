"""One process at a time in one run's folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from gpam.errors import UsageError


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock``; the system lets go of it when the process ends, however it ends."""
    path = folder / ".lock"
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{path} cannot be opened ({error.strerror}); remove it if it is a link") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise UsageError(f"another process is working on {folder}; wait for it, or stop it, and try again") from None
    except OSError as error:
        os.close(file)
        raise UsageError(
            f"{folder} lies on a file system without locks ({error.strerror}), so two processes could write there at "
            "once; set paths.results to another"
        ) from None
    try:
        yield
    finally:
        os.close(file)
