"""Where the time of a piece of work goes, by PyTorch's profiler: what would be left to gain, and in what."""

import time
from collections.abc import Callable
from statistics import median

from torch.profiler import ProfilerActivity, profile

from gpam_suite.benchmark.silence import silent

KINDS = {
    "products": ("bmm", "mm", "baddbmm", "addmm", "scaled_dot_product"),
    "softmax": ("softmax",),
    "copies": ("copy", "clone", "cat", "stack", "contiguous"),
}
"""Kind of work to parts of its operators' names, the first that fits; all others are ``passes``: sums, products
entry by entry, masks."""
SHARES = (*KINDS, "passes", "rest")
"""``rest`` is the time outside of operators: Python, and the calls themselves."""
_REPEATS = 3


def time_shares(work: Callable[[], object]) -> dict[str, float]:
    """Kind of work to its share of the time on a CPU, medians over some runs; they add up to 1 but for that."""
    work()
    samples = [_sample(work) for _ in range(_REPEATS)]
    return {kind: median(sample[kind] for sample in samples) for kind in SHARES}


def _sample(work: Callable[[], object]) -> dict[str, float]:
    with silent(), profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiled:
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
    found = dict.fromkeys(SHARES, 0.0)
    for event in profiled.key_averages():
        if event.key.startswith("aten::"):
            found[_kind(event.key)] += event.self_cpu_time_total / 1e6 / seconds
    found["rest"] = max(0.0, 1 - sum(found.values()))
    return found


def _kind(operator: str) -> str:
    return next((kind for kind, parts in KINDS.items() if any(part in operator for part in parts)), "passes")
