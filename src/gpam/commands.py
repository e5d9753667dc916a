"""How commands end: unread, or by Ctrl-C."""

import multiprocessing
import os
import select
import signal
import sys
from pathlib import Path

UNREAD_EXIT = 128 + 13  # that of a program which SIGPIPE ended


def nobody_reads() -> bool:
    """After a BrokenPipeError: whether it was stdout's, whose reader has seen enough (``... --help | head``).

    What Python would still write there at its end then goes nowhere, so that it complains about nothing.
    """
    look = select.poll()
    look.register(sys.stdout.fileno(), 0)
    if not look.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


def end_by_ctrl_c_while_importing(package: str, scripts: Path | None = None) -> None:
    """Where a command of ours, ``python -m package`` or a file in ``scripts``, is being imported, for seconds, Ctrl-C
    just ends it. A program of somebody else's that imports ``package`` keeps its own way.

    Python would print what it was importing. :func:`ctrl_c_raises` has it as ever.
    """
    words = sys.orig_argv
    module = words[words.index("-m") + 1 :][:1] if sys.argv[0] == "-m" and "-m" in words else []
    ours = [name for name in module if name.partition(".")[0] == package]
    starts = ours or (scripts is not None and Path(sys.argv[0]).resolve().parent == scripts)
    first = multiprocessing.current_process().name == "MainProcess"
    if starts and first and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def ctrl_c_raises() -> None:
    """A command is imported: from here on Ctrl-C raises KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
