"""Commands that are measured from outside: what they say, and the most memory that they hold."""

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError


def call(command: Iterable[Any], variables: Mapping[str, str] | None = None, **streams: Any) -> tuple[list[str], int]:
    """Run a command with further environment ``variables``: the lines that it says, and its most memory in bytes.

    ``streams``: files for ``stdin`` and ``stdout``.

    Raises:
        UsageError: it fails, said in its last words, or is not installed.
    """
    words = list(map(str, command))
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        streams = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said} | streams
        try:
            process = subprocess.Popen(words, env={**os.environ, **(variables or {})}, **streams)
        except OSError as error:
            raise UsageError(f"{words[0]} cannot be run: {error.strerror}") from error
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().splitlines()
    if process.returncode:
        last = lines[-1] if lines else "it said nothing"
        raise UsageError(f"{' '.join([Path(words[0]).name, *words[1:4]])} ended with {process.returncode}: {last}")
    return lines, usage.ru_maxrss * 1024


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
