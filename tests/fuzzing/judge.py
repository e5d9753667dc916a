"""What may happen to an input: a result, or one sentence with exit code 2; neither a traceback nor a hang."""

import contextlib
import io
import signal
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from gpam_suite.run.command_line import guarded

SECONDS, WAITING = 20, 600  # of the processor's for one case; and of the clock's, on a machine with other work
REFUSED = object()


class Broken(AssertionError):
    """The promise is broken."""


def outcome(work: Callable[[], Any]) -> Any:
    """What ``work`` returns, or :data:`REFUSED` where the commands would print one sentence and exit with 2.

    Raises:
        Broken: any other exception, a sentence that is none, or no end.
    """
    found: list[Any] = []
    with _limit(), contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            code = guarded(lambda: found.append(work()))
        except (Exception, SystemExit) as error:
            raise Broken(f"a traceback: {''.join(traceback.format_exception(error))[-1500:]}") from None
    if code == 0:
        return found[0]
    sentence = said.getvalue()
    if code != 2 or len(sentence.strip().splitlines()) != 1 or len(sentence) > 1500:
        raise Broken(f"exit code {code} with {sentence!r}, wanted one sentence and 2")
    return REFUSED


def refused(found: Any, *, intact: bool) -> bool:
    """Whether ``found`` is :data:`REFUSED`, which of an ``intact`` file would break the promise as well."""
    if found is REFUSED and intact:
        raise Broken("an intact file was refused")
    return found is REFUSED


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    def over(*_: Any) -> None:
        raise Broken(f"no end after {SECONDS} s of work, or {WAITING} s")

    timers = (signal.ITIMER_PROF, signal.SIGPROF, SECONDS), (signal.ITIMER_REAL, signal.SIGALRM, WAITING)
    before = [signal.signal(number, over) for _, number, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
