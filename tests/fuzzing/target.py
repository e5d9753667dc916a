"""One thing that is read, many times."""

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st


@dataclass(frozen=True)
class Target:
    """``check(case, folder)`` raises where the promise is broken for a case that ``cases(folder)`` draws.

    ``full`` and ``sample``: how many cases ``make soak`` and CI run. ``folder`` is empty in the beginning.
    """

    name: str
    cases: Callable[[Path], st.SearchStrategy]
    check: Callable[[Any, Path], None]
    full: int
    sample: int


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder that lies in the memory where the system has such, as thousands of small files on a disk take long."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def fuzz(target: Target, number: int, folder: Path, *, repeatable: bool = True) -> int:
    """Run ``number`` cases of ``target``; returns how many there were (fewer where there are no more to draw).

    ``repeatable``: the same cases every time, as CI wants them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    seen = 0

    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=repeatable,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
    )
    @given(target.cases(folder))
    def cases(case: Any) -> None:
        nonlocal seen
        seen += 1
        target.check(case, folder)

    cases()
    return seen
