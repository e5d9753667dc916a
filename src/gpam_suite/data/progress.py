"""How far a stage is: a bar with the time left on a terminal, a plain line now and then anywhere else."""

import io
import logging
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

log = logging.getLogger(__name__)

DELAY = 1.0  # seconds before a bar appears: what is done sooner needs none
EVERY = 10.0  # seconds between plain lines


def progress(
    what: str, total: int | None, *, of: Iterable[Any] | None = None, unit: str = "B", initial: int = 0
) -> tqdm:
    """A bar called ``what`` over ``total`` units (None: not known), of which ``initial`` are done; it may be iterated
    where it is ``of`` something.
    """
    common = {"iterable": of, "desc": what, "total": total, "unit": unit, "unit_scale": True, "initial": initial}
    if sys.stderr.isatty():
        return tqdm(**common, delay=DELAY, leave=False)
    known = "{desc}: {percentage:.0f} % of {total_fmt}{unit}, {remaining} left" if total else "{desc}: {n_fmt}{unit}"
    return _Lines(**common, delay=EVERY, mininterval=EVERY, leave=False, file=io.StringIO(), bar_format=known)


class _Lines(tqdm):
    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if msg is None:
            log.info("%s", self)
