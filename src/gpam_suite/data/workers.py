"""Work on the lines of a text, chunk by chunk and in order, spread over processes where the text is worth it.

A *task* is a function from the lines of a chunk to its result, one that processes can be sent; a model that it needs it
loads once (``functools.lru_cache``). A few chunks a process are under way, so that memory does not grow with the text.
"""

import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam.processor import cores
from gpam_suite.common.stopping import die_with
from gpam_suite.data.progress import progress

OfLines = Callable[[list[str]], Any]

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

    def results(self, task: OfLines, text: Path, what: str) -> Iterator[Any]:
        """The result of ``task`` for each chunk of ``text``, in order, under a progress bar called ``what``.

        Raises:
            UsageError: a :class:`BadLine`, with its number in the whole text; a process was killed.
        """
        before, size = 0, text.stat().st_size
        with text.open("rb") as file, progress(what, size) as bar:
            chunks = iter(lambda: b"".join(file.readlines(CHUNK)), b"")  # of whole lines
            for length, lines, result in self._each(partial(_work, task), chunks, size):
                if isinstance(result, BadLine):
                    number, wrong = result.args
                    raise UsageError(f"{what.partition(' ')[2]}, line {before + number}: {wrong}")
                before += lines
                bar.update(length)
                yield result

    def _each(self, work: Callable[[bytes], Any], chunks: Iterator[bytes], size: int) -> Iterator[Any]:
        if self.number == 1 or size < WORTH_IT:
            yield from map(work, chunks)
            return
        if self._pool is None:
            # a fork needs no second import of everything; the processes use no thread of the one they come from
            context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
            self._pool = ProcessPoolExecutor(self.number, context, _follow, (os.getpid(),))
        try:
            while some := list(itertools.islice(chunks, _AT_ONCE * self.number)):
                yield from self._pool.map(work, some)
        except BrokenProcessPool:
            raise UsageError(
                "a process that prepares text was killed, perhaps for want of memory; try fewer (paths.workers=1)"
            ) from None


def _work(task: OfLines, chunk: bytes) -> tuple[int, int, Any]:
    """Bytes, lines and result of one chunk."""
    lines = chunk.decode("utf-8").removesuffix("\n").split("\n")
    try:
        result = task(lines)
    except BadLine as error:
        result = error
    return len(chunk), len(lines), result


def _follow(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end when it is gone, however it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)()
