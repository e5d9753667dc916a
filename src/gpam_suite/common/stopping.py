"""How a run is stopped from outside: SIGTERM, by which schedulers ask, Ctrl-C and the end of its terminal save first;
none outlives a kill."""

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
ASKED_BY = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C", signal.SIGHUP: "SIGHUP, by which a terminal ends"}
_PR_SET_PDEATHSIG = 1
_C = ctypes.CDLL(None) if sys.platform == "linux" else None
_came: int | None = None  # the first signal that asked this process to stop


class Preempted(BaseException):
    """A signal of :data:`ASKED_BY` came. What this says tells how far the run was; started again, it goes on.

    No ``Exception``, so that the other members of a multirun are not started either.
    """


def ended_by(number: int) -> str:
    """A signal by its name, with what it may mean to a user."""
    if number == signal.SIGKILL:
        return "SIGKILL, which the system sends where memory has run out"
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def asked_by() -> int:
    """The signal that asked this process to stop."""
    return _came or signal.SIGTERM


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
def when_stopped(act: Callable[[], Any]) -> Iterator[None]:
    """While this holds, the first signal of :data:`ASKED_BY` calls ``act``; those that follow do nothing, so that what
    is being saved is saved. Signals go to the main thread: elsewhere nothing changes. Under ``nohup`` the end of the
    terminal stays ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, _: Any) -> None:
        global _came
        if _came is None:
            _came = number
            act()

    heard = set(ASKED_BY) - ({signal.SIGHUP} if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else set())
    before = {number: signal.signal(number, asked) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if _came is None else asked)


def stop_now(why: str = "nothing had to be saved") -> NoReturn:
    """Raise :class:`Preempted`; for :func:`when_stopped` where nothing has to be saved."""
    raise Preempted(why)


@contextlib.contextmanager
def passed_on(worker: subprocess.Popen) -> Iterator[threading.Event]:
    """While this holds, what asks this process to stop goes to ``worker`` too, as SIGTERM; gives whether it came."""
    came = threading.Event()

    def pass_on() -> None:
        came.set()
        worker.terminate()

    with when_stopped(pass_on):
        yield came


@contextlib.contextmanager
def members_save_alone() -> Iterator[None]:
    """While members of a multirun are at work in processes of this one, Ctrl-C ends it at once: joblib, told of it,
    would kill them, whereas the end of their parent has them save (:func:`stopped_with_parent`)."""

    def leave(*_: Any) -> None:
        if not multiprocessing.active_children():
            raise KeyboardInterrupt
        said = "stopped by Ctrl-C: the runs save where they are; the same command goes on"
        os.write(sys.stderr.fileno(), f"{os.path.basename(sys.argv[0])}: {said}\n".encode())
        os._exit(128 + signal.SIGINT)

    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")  # it cleans up, and need not say so
    before = signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
