"""Signals its whole process group at the n-th audit event of a kind: ``SOAK_KILL`` is event, pattern, n and signal.

The folder stands in ``PYTHONPATH`` of a run, so that Python itself loads this file, in the run's workers too.
"""

import os
import re
import sys


def arm(event: str, pattern: str, number: str, sent: str) -> None:
    left, wanted = int(number), re.compile(pattern)

    def hook(name: str, arguments: tuple) -> None:
        nonlocal left
        if name == event:
            path = arguments[1] if event == "os.rename" else arguments[0]
            if isinstance(path, str | os.PathLike) and wanted.search(os.fspath(path)):
                left -= 1
                if left == 0:
                    os.killpg(os.getpgrp(), int(sent))

    sys.addaudithook(hook)


if os.environ.get("SOAK_KILL"):
    arm(*os.environ["SOAK_KILL"].split("\t"))
