"""The one exception for a caller's mistake, and the sentence it carries."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A mistake of the caller's: one sentence that says what was got, what is wanted and what to do.

    The command line tools print it without a traceback and exit with code 2.
    """


def did_you_mean(got: str, choices: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the closest of ``choices``, else the empty string."""
    close = difflib.get_close_matches(str(got), [str(choice) for choice in choices], n=1)
    return f"; did you mean '{close[0]}'?" if close else ""


def in_a_line(error: BaseException) -> str:
    """What ``error`` says, on one line that is not too long for a sentence; its type where it says nothing."""
    return " ".join(str(error).split())[:200] or type(error).__name__
