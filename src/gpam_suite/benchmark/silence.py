"""Without stderr, where the profiler's library tells that it starts and stops."""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """While this holds, nothing reaches the process's stderr."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
