"""Work on the lines of a text, chunk by chunk and in order, spread over processes where the text is worth it.

A *task* is a function of this package with its arguments. ``task(*arguments)`` returns the work of one process, a
function from the lines of a chunk to its result; it is called once in each process, so it may load a model and keep a
cache. Only file offsets go to the processes, and a few chunks a process are under way, so that memory does not grow
with the text.
"""

import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.stopping import die_with
from gpam_suite.data.progress import progress

Task = tuple[Callable[..., Callable[[list[str]], Any]], tuple[Any, ...]]

CHUNK = 1 << 19  # bytes of text
WORTH_IT = 4 * CHUNK  # a shorter text is done before processes have started
_AT_ONCE = 8  # chunks a process, after which the results have to be taken


class BadLine(Exception):
    """A line of a chunk (from 1) is a mistake of the user's; ``args`` are its number and what is wrong with it."""


class Workers:
    """Up to ``number`` processes (None: one a core), started by the first text that is worth it."""

    def __init__(self, number: int | None = None) -> None:
        self.number = number or cores()
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def results(self, task: Task, text: Path, what: str) -> Iterator[Any]:
        """The result of ``task`` for each chunk of ``text``, in order, under a progress bar called ``what``.

        Raises:
            UsageError: a :class:`BadLine`, with its number in the whole text; a process was killed.
        """
        with progress(what, text.stat().st_size) as bar:
            before = 0
            for size, lines, result in self._each(task, text):
                if isinstance(result, BadLine):
                    number, wrong = result.args
                    raise UsageError(f"{what.partition(' ')[2]}, line {before + number}: {wrong}")
                before += lines
                bar.update(size)
                yield result

    def _each(self, task: Task, text: Path) -> Iterator[tuple[int, int, Any]]:
        work, places = partial(_work, task, text), chunks(text)
        if self.number == 1 or text.stat().st_size < WORTH_IT:
            yield from map(work, places)
            return
        pool = self._started()
        try:
            while some := list(itertools.islice(places, _AT_ONCE * self.number)):
                yield from pool.map(work, some)
        except BrokenProcessPool:
            raise UsageError(
                "a process that prepares text was killed, perhaps for want of memory; try fewer (paths.workers=1)"
            ) from None

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # a fork needs no second import of everything; the processes use no thread of the one they come from
            context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
            self._pool = ProcessPoolExecutor(self.number, context, _follow, (os.getpid(),))
        return self._pool


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunks(text: Path) -> Iterator[tuple[int, int]]:
    """Offsets of consecutive parts of ``text`` of about :data:`CHUNK` bytes, each of whole lines."""
    with text.open("rb") as file:
        begin = 0
        while file.seek(begin + CHUNK) and (file.readline() or file.seek(0, os.SEEK_END) > begin):
            end = file.tell()
            yield begin, end
            begin = end


def lines_between(text: Path, begin: int, end: int) -> list[str]:
    """The lines of one chunk."""
    with text.open("rb") as file:
        file.seek(begin)
        lines = file.read(end - begin).decode("utf-8").split("\n")
    return lines if lines[-1] else lines[:-1]


def _work(task: Task, text: Path, place: tuple[int, int]) -> tuple[int, int, Any]:
    """Bytes, lines and result of one chunk."""
    begin, end = place
    lines = lines_between(text, begin, end)
    try:
        result = _ready(task)(lines)
    except BadLine as error:
        result = error
    return end - begin, len(lines), result


@lru_cache(maxsize=4)
def _ready(task: Task) -> Callable[[list[str]], Any]:
    function, arguments = task
    return function(*arguments)


def _follow(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it is gone, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)()
