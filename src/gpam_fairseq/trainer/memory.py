"""Memory that malloc keeps: a step allocates and frees the same blocks again and again.

glibc gives large blocks back to the system as soon as they are free, and the next step has every page of them mapped
and zeroed anew. No number depends on it.
"""

import contextlib
import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of mallopt's, malloc.h
_LARGEST = 32 << 20  # of a block from the heap: what glibc allows
_KEPT = 1 << 30  # free at the heap's end before any of it is given back


def keep_memory() -> None:
    """Let this process keep freed memory for its next step; nothing where the C library is not glibc."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _LARGEST)
        mallopt(_TRIM_THRESHOLD, _KEPT)
