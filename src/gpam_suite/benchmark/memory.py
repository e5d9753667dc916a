"""The most memory that a piece of work holds at once, beyond what was held before it."""

import contextlib
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from gpam.attention.backends.workspace import POOL
from gpam_suite.benchmark.silence import silent

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
    gc.collect()  # what is freed while the work runs would be taken off its peak
    with silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiled:
        result = work()
    changes = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        live += change.nbytes()
        peak = max(peak, live)
    return peak, result


def peak_bytes_of_processes(work: Callable[[], object]) -> int | None:
    """The most memory that the processes started by ``work`` held together, looked at every 20 ms.

    A page that several share counts once (Linux's proportional set size). None where the system does not tell.
    """
    others = set(_descendants(os.getpid()))  # what was there before is none of this work
    peak, done = 0, threading.Event()

    def look() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, sum(map(_proportional_bytes, set(_descendants(os.getpid())) - others)))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        work()
    finally:
        done.set()
        watching.join()
    return peak or None


def _descendants(process: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):  # it may be gone by now
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _proportional_bytes(process: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0
