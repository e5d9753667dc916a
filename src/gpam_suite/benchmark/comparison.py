"""Contenders side by side: numbers first, then memory and FLOPs, then times, interleaved in one process."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from gpam.errors import UsageError

log = logging.getLogger(__name__)
SHORTEST_SAMPLE = 0.02  # seconds: a sample of less repeats the work


@dataclass(frozen=True)
class Settings:
    """What a run of the benchmark holds fixed over its cases."""

    threads: int
    repeats: int
    seed: int
    device: str  # cpu or cuda


@dataclass(frozen=True)
class Contender:
    """One way to do the work of a case.

    ``run`` does it once and is what is timed, or returns its seconds. ``error`` is the largest relative error of the
    numbers that it makes, asked for before anything is timed; ``measure`` gives the further numbers of its row, once it
    is right.
    """

    run: Callable[[], object]
    error: Callable[[], float]
    measure: Callable[[], Mapping[str, Any]]


Maker = Callable[[str], Contender]
"""The contender of a name; a UsageError says why it takes no part."""


def compare(names: Iterable[str], make: Maker, *, repeats: int, tolerance: float) -> list[dict[str, Any]]:
    """One row a contender: ``contender``, ``error``, what it measured, ``seconds`` (one a repeat), and ``note``.

    One that takes no part, is wrong or fails, while it is timed too, has a note and no time, and does not end the
    comparison of the others.
    """
    rows: dict[str, dict[str, Any]] = {name: {"contender": name, "note": ""} for name in names}
    able = {}
    for name, row in rows.items():
        try:
            contender = make(name)
            error = contender.error()
            row["error"] = error if math.isfinite(error) else None  # JSON has no NaN
            if not error <= tolerance:
                raise UsageError(f"wrong: relative error {error:.1e}, allowed {tolerance:.0e}")
            row.update(contender.measure())
            able[name] = contender.run
        except Exception as mistake:
            row["note"] = _note(mistake)
    for name, found in _interleaved(able, repeats).items():
        rows[name] |= {"note": _note(found)} if isinstance(found, Exception) else {"seconds": found}
    return list(rows.values())


def _note(mistake: Exception) -> str:
    if isinstance(mistake, UsageError):
        return str(mistake)
    return f"failed: {type(mistake).__name__}: {str(mistake).partition(chr(10))[0]}"


def _interleaved(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float] | Exception]:
    """``repeats`` samples of each, in rounds that begin with another one each time; a first round is not counted. One
    that fails takes no further part."""
    samples: dict[str, list[float] | Exception] = {name: [] for name in works}
    calls = dict.fromkeys(works, 1)
    for repeat in range(-1, repeats):
        names = list(calls)
        for position in range(len(names)):
            name = names[(position + repeat) % len(names)]
            try:
                seconds = _seconds(works[name], calls[name])
            except Exception as mistake:
                samples[name] = mistake
                del calls[name]
                continue
            if repeat < 0:
                calls[name] = max(1, math.ceil(SHORTEST_SAMPLE / seconds))
            else:
                samples[name].append(seconds)
        if repeat >= 0:
            log.info("  repeat %d of %d", repeat + 1, repeats)
    return samples


def _seconds(work: Callable[[], object], calls: int) -> float:
    """Seconds a call, the mean of some; by what the work says itself where it returns a number of seconds."""
    synchronise()
    began = time.perf_counter()
    said: list[float] = []
    for _ in range(calls):
        if isinstance(found := work(), float):
            said.append(found)
        del found  # a result that is kept has the next call take other memory
    synchronise()
    return math.fsum(said) / calls if said else (time.perf_counter() - began) / calls


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
