"""Work on the lines of a text, chunk by chunk and in order, spread over processes where the text is worth it.

A *task* is a function of this package with its arguments. ``task(*arguments)`` returns the work of one process, a
function from the lines of a chunk to its result; it is called once in each process, so it may load a model and keep a
cache. Only file offsets go to the processes, and at most two chunks a process are under way, so that memory does not
grow with the text.
"""

import collections
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.data.progress import progress

Task = tuple[Callable[..., Callable[[list[str]], Any]], tuple[Any, ...]]

CHUNK = 1 << 19  # bytes of text
WORTH_IT = 4 * CHUNK  # a shorter text is done before processes have started


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
        size = text.stat().st_size
        with progress(what, size) as bar:
            before = 0
            for begin, end, (lines, result) in self._each(task, text, size):
                if isinstance(result, BadLine):
                    number, wrong = result.args
                    raise UsageError(f"{what.partition(' ')[2]}, line {before + number}: {wrong}")
                before += lines
                bar.update(end - begin)
                yield result

    def _each(self, task: Task, text: Path, size: int) -> Iterator[tuple[int, int, Any]]:
        if self.number == 1 or size < WORTH_IT:
            for begin, end in chunks(text):
                yield begin, end, _work(task, text, begin, end)
            return
        pool = self._started()
        waiting: collections.deque[tuple[int, int, Future[Any]]] = collections.deque()
        try:
            for begin, end in chunks(text):
                waiting.append((begin, end, pool.submit(_work, task, text, begin, end)))
                if len(waiting) >= 2 * self.number:
                    yield _finished(waiting)
            while waiting:
                yield _finished(waiting)
        except BrokenProcessPool:
            raise UsageError(
                "a process that prepares text was killed, perhaps for want of memory; try fewer (paths.workers=1)"
            ) from None
        finally:
            for *_, future in waiting:
                future.cancel()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # a fork needs no second import of everything; the processes use no thread of the one they come from
            context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
            self._pool = ProcessPoolExecutor(self.number, context, initializer=_live_with_parent)
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


def _work(task: Task, text: Path, begin: int, end: int) -> tuple[int, Any]:
    lines = lines_between(text, begin, end)
    try:
        return len(lines), _ready(task)(lines)
    except BadLine as error:
        return len(lines), error


@lru_cache(maxsize=4)
def _ready(task: Task) -> Callable[[list[str]], Any]:
    function, arguments = task
    return function(*arguments)


def _finished(waiting: collections.deque[tuple[int, int, Future[Any]]]) -> tuple[int, int, Any]:
    begin, end, future = waiting.popleft()
    return begin, end, future.result()


def _live_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end when it is gone, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def wait() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
