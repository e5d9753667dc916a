"""How far a stage is: a bar with the time left on a terminal, a plain line now and then anywhere else."""

import io
import logging
import sys

from tqdm import tqdm

log = logging.getLogger(__name__)

DELAY = 1.0  # seconds before a bar appears: what is done sooner needs none
EVERY = 10.0  # seconds between plain lines


def progress(what: str, total: int | None, initial: int = 0) -> tqdm:
    """A bar called ``what`` over ``total`` bytes (None: not known), of which ``initial`` are done."""
    common = {"desc": what, "total": total, "unit": "B", "unit_scale": True, "initial": initial}
    if sys.stderr.isatty():
        return tqdm(**common, delay=DELAY, leave=False)
    known = "{desc}: {percentage:.0f} % of {total_fmt}{unit}, {remaining} left" if total else "{desc}: {n_fmt}{unit}"
    return _Lines(**common, delay=EVERY, mininterval=EVERY, leave=False, file=io.StringIO(), bar_format=known)


class _Lines(tqdm):
    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if msg is None:
            log.info("%s", self)
