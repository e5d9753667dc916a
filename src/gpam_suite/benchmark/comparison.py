"""Contenders side by side: numbers first, then memory and FLOPs, then times, interleaved in one process."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gpam.errors import UsageError
from gpam_suite.benchmark.counting import count_flops
from gpam_suite.benchmark.memory import peak_bytes
from gpam_suite.benchmark.shares import time_shares

log = logging.getLogger(__name__)
SHORTEST_SAMPLE = 0.02  # seconds: a sample of less repeats the work


@dataclass(frozen=True)
class Contender:
    """One way to do the work of a case.

    ``run`` does it once and is what is timed, or returns its seconds. ``error`` is the largest relative error of the
    numbers that it makes, asked for before anything is timed. ``limit`` is the least time ratio to softmax that its
    products allow (:func:`gpam_suite.benchmark.counting.limit`), ``facts`` are further numbers for the record,
    ``measure`` gives those that take work, once the contender is right, and ``refusal`` says why it does not take part.
    """

    name: str
    run: Callable[[], object] = lambda: None
    error: Callable[[], float] = lambda: math.nan
    limit: float | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    refusal: str = ""
    measure: Callable[[], Mapping[str, float | None]] = dict


def compare(
    contenders: Sequence[Contender],
    *,
    repeats: int,
    tolerance: float,
    measure_memory: bool = False,
    measure_flops: bool = True,
    device: str = "cpu",
) -> list[dict[str, Any]]:
    """One row a contender: ``contender``, ``error``, ``seconds`` (one a repeat), ``peak_bytes``, ``flops``, ``shares``
    of its time, ``limit``, its facts, and ``note``. A refused or wrong contender has a note and no time.
    """
    rows = {contender.name: {"contender": contender.name, "note": contender.refusal} for contender in contenders}
    able = []
    for contender in contenders:
        row = rows[contender.name]
        if contender.refusal:
            continue
        try:
            row["error"] = contender.error()
        except Exception as mistake:  # one that fails here must not end the comparison of the others
            row["note"] = str(mistake) if isinstance(mistake, UsageError) else f"failed: {_first_line(mistake)}"
            continue
        if not row["error"] <= tolerance:
            row["note"] = f"wrong: relative error {row['error']:.1e}, allowed {tolerance:.0e}"
            row["error"] = row["error"] if math.isfinite(row["error"]) else None  # JSON has no NaN
            continue
        able.append(contender)
        row |= {"limit": contender.limit, **contender.facts, **contender.measure()}
        if measure_memory:
            row["peak_bytes"], row["flops"] = peak_bytes(lambda work=contender.run: count_flops(work), device)
            if device == "cpu":
                row["shares"] = time_shares(contender.run)
        elif measure_flops:
            row["flops"] = count_flops(contender.run)
    for contender, seconds in zip(able, _interleaved([contender.run for contender in able], repeats), strict=True):
        rows[contender.name]["seconds"] = seconds
    return list(rows.values())


def _first_line(mistake: Exception) -> str:
    return f"{type(mistake).__name__}: {str(mistake).partition(chr(10))[0]}"


def _interleaved(works: Sequence[Callable[[], object]], repeats: int) -> list[list[float]]:
    """``repeats`` samples of each, in rounds that begin with another one each time; a first round is not counted."""
    calls = [max(1, math.ceil(SHORTEST_SAMPLE / _seconds(work, 1))) for work in works]
    samples: list[list[float]] = [[] for _ in works]
    for repeat in range(repeats):
        for position in range(len(works)):
            index = (position + repeat) % len(works)
            samples[index].append(_seconds(works[index], calls[index]))
        log.info("  repeat %d of %d", repeat + 1, repeats)
    return samples


def _seconds(work: Callable[[], object], calls: int) -> float:
    """Seconds a call, the mean of some; by what the work says itself where it returns a number of seconds."""
    synchronise()
    began = time.perf_counter()
    said = [work() for _ in range(calls)]
    synchronise()
    if all(isinstance(seconds, float) for seconds in said):
        return math.fsum(said) / calls
    return (time.perf_counter() - began) / calls


def synchronise() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def relative_error(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """The largest difference of any pair, each relative to the largest entry of what is wanted; NaN stays NaN."""
    errors = [
        float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp(min=1e-12))
        for ours, theirs in zip(got, want, strict=True)
    ]
    return math.nan if any(math.isnan(error) for error in errors) else max(errors)
