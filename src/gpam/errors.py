"""The one exception for a caller's mistake, and the sentence it carries; and how a command ends that nobody reads."""

import difflib
import os
import select
import sys
from collections.abc import Iterable

UNREAD_EXIT = 128 + 13  # that of a program which SIGPIPE ended


class UsageError(ValueError):
    """A mistake of the caller's: one sentence that says what was got, what is wanted and what to do.

    The command line tools print it without a traceback and exit with code 2.
    """


def did_you_mean(got: str, choices: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the closest of ``choices``, else the empty string."""
    close = difflib.get_close_matches(str(got), [str(choice) for choice in choices], n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else ""


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
