"""Which processor this is, as Linux tells it, and how many of its cores are ours. Needs no torch."""

import contextlib
import os
import platform


def facts() -> dict[str, str]:
    """What ``/proc/cpuinfo`` says of the first core; nothing on a system without it."""
    found = {}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            what, colon, value = line.partition(":")
            if not colon:  # the next core's begin
                break
            found[what.strip()] = value.strip()
    return found


def name() -> str:
    """The processor's name, with family and model: a cloud's "AMD EPYC" can be of any generation."""
    found = facts()
    said = found.get("model name") or platform.processor() or platform.machine()
    if {"cpu family", "model"} <= found.keys():
        said += f" (family {found['cpu family']}, model {found['model']})"
    return said


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
