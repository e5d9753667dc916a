"""What one pass takes beside time: memory at its peak, FLOPs, and by PyTorch's profiler what its time goes into."""

import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from gpam.attention.backends.workspace import POOL
from gpam_suite.benchmark.comparison import synchronise
from gpam_suite.benchmark.counting import count_flops

OPERATORS = {
    "products": ("bmm", "mm", "baddbmm", "addmm", "scaled_dot_product"),
    "softmax": ("softmax",),
    "copies": ("copy", "clone", "cat", "stack", "contiguous"),
}
"""Kind of work to parts of its operators' names, the first that fits; all others are ``passes``: sums, products
entry by entry, masks."""
SHARES = (*OPERATORS, "passes", "rest")
"""``rest`` is the time outside of operators: Python, and the calls themselves."""
_REPEATS = 3
Result = TypeVar("Result")


def profiled(work: Callable[[], object], device: str) -> dict[str, Any]:
    """``peak_bytes`` and ``flops`` of a pass, and on a CPU the ``shares`` of its time."""
    peak, flops = peak_bytes(lambda: count_flops(work), device)
    return {"peak_bytes": peak, "flops": flops} | ({"shares": time_shares(work)} if device == "cpu" else {})


def peak_bytes(work: Callable[[], Result], device: str = "cpu") -> tuple[int, Result]:
    """The most live bytes of torch's allocator beyond those before the work, and what ``work`` returned.

    Kernels' own scratch memory is included, MKL's is not. The buffers that the tiled backends keep between calls are
    given back first, so that they count.
    """
    POOL.clear()
    gc.collect()  # what is freed while the work runs would be taken off its peak
    if device != "cpu":
        synchronise()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = work()
        synchronise()
        return torch.cuda.max_memory_allocated() - before, result
    with _profile(profile_memory=True) as seen:
        result = work()
    changes = [event for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        live += change.nbytes()
        peak = max(peak, live)
    return peak, result


def time_shares(work: Callable[[], object]) -> dict[str, float]:
    """Kind of work to its share of the time on a CPU, means over some runs; they add up to 1."""
    work()
    samples = [_sample(work) for _ in range(_REPEATS)]
    return {kind: fmean(sample[kind] for sample in samples) for kind in SHARES}


def _sample(work: Callable[[], object]) -> dict[str, float]:
    with _profile() as seen:
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
    found = dict.fromkeys(SHARES, 0.0)
    for event in seen.key_averages():
        if event.key.startswith("aten::"):
            own = (kind for kind, parts in OPERATORS.items() if any(part in event.key for part in parts))
            kind = next(own, "passes")
            found[kind] += event.self_cpu_time_total / 1e6 / seconds
    found["rest"] = max(0.0, 1 - sum(found.values()))
    return found


@contextlib.contextmanager
def _profile(**options: bool) -> Iterator[profile]:
    """PyTorch's profiler, with the process's stderr closed to its library, which tells there that it starts and
    stops."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with profile(activities=[ProfilerActivity.CPU], acc_events=True, **options) as seen:
            yield seen
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
