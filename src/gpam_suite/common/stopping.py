"""How a run is stopped from outside: SIGTERM, by which schedulers ask, saves first; and nothing outlives a kill."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

STOPPED_EXIT = 128 + signal.SIGTERM
_PR_SET_PDEATHSIG = 1
_C = ctypes.CDLL(None) if sys.platform == "linux" else None


class Preempted(BaseException):
    """SIGTERM came. What it says tells how far the run was; started again, it goes on.

    No ``Exception``, so that the other members of a multirun are not started either.
    """


def die_with(parent: int, how: int = signal.SIGKILL) -> Callable[[], None]:
    """For ``Popen(preexec_fn=die_with(os.getpid()))``: the system signals the child when ``parent`` has ended, however.

    A run's worker would otherwise train on, and write into a folder that another process has taken up. On Linux only;
    elsewhere the worker of a killed run has to be ended by hand.
    """

    def in_the_child() -> None:
        if _C is not None:
            _C.prctl(_PR_SET_PDEATHSIG, how)
            if os.getppid() != parent:  # it was gone already
                os._exit(1)

    return in_the_child


@contextlib.contextmanager
def stopped_with_parent() -> Iterator[None]:
    """In a process that multiprocessing started, such as a member of a multirun on this machine's cores: SIGTERM comes
    when its parent has ended, however, and the process ends too. On Linux only; elsewhere members go on to the end."""
    if _C is None or multiprocessing.current_process().name == "MainProcess":
        yield
        return
    parent = os.getppid()
    _C.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    try:
        yield
    except Preempted:
        if os.getppid() != parent:  # nobody is left to tell, and multiprocessing would wait for more work
            sys.stdout.flush()
            os._exit(STOPPED_EXIT)
        raise


@contextlib.contextmanager
def on_sigterm(act: Callable[[], Any]) -> Iterator[None]:
    """While this holds, SIGTERM calls ``act``. Signals go to the main thread: elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def stop_now(why: str = "nothing had to be saved") -> NoReturn:
    """Raise :class:`Preempted`; for :func:`on_sigterm` where nothing has to be saved."""
    raise Preempted(why)


@contextlib.contextmanager
def passed_on(worker: subprocess.Popen) -> Iterator[threading.Event]:
    """While this holds, SIGTERM goes to ``worker`` as well; gives whether it came."""
    came = threading.Event()

    def pass_on() -> None:
        came.set()
        worker.terminate()

    with on_sigterm(pass_on):
        yield came
