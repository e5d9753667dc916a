"""One process at a time in one run's folder."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from gpam.errors import UsageError


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock``; the system lets go of it when the process ends, however it ends."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another process is working on {folder}; wait for it, or stop it, and try again"
            ) from None
        yield
