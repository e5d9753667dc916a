"""The most memory that a piece of work holds at once, beyond what was held before it."""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from gpam.attention._workspace import POOL

Result = TypeVar("Result")


def peak_bytes(work: Callable[[], Result], device: str = "cpu") -> tuple[int, Result]:
    """The peak of the live bytes of torch's allocator, and what ``work`` returned.

    Kernels' own scratch memory is included, MKL's is not. The buffers that the tiled backends keep between calls are
    given back first, so that they count.
    """
    POOL.clear()
    if device != "cpu":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = work()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before, result
    with _silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        result = work()
    changes = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        live += change.nbytes()
        peak = max(peak, live)
    return peak, result


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without stderr, where the profiler's library tells that it starts and stops."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
