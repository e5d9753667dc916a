"""One process at a time in one run's folder."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.data.store import atomic


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder/.lock``; the system lets go of it when the process ends, however it ends.

    Raises:
        UsageError: another process has it, or there can be no such lock.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(atomic.locked(folder, wait=False))
        except BlockingIOError:
            raise UsageError(
                f"another process is working on {folder}; wait for it, or stop it, and try again"
            ) from None
        except OSError as error:
            raise UsageError(
                f"{folder / '.lock'} cannot be opened ({error.strerror}); remove it if it is a link"
            ) from None
        yield
