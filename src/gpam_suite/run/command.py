"""The command line of the process that trains a run."""

import os
import sys
from pathlib import Path

from gpam_suite.run.ranks import place_of

_DEAF = ["sh", "-c", 'trap "" USR2; exec "$0" "$@"']


def worker_command(devices: int, folder: Path, data: Path) -> list[str]:
    """A worker, or what starts a worker for each of ``devices`` of this machine where nobody outside did.

    In a job of submitit's it does not hear SIGUSR2, which a job's processes are sent before it has to go. It means the
    job's own process, which has itself queued again; it should not find its worker dead and record a failed run.
    """
    alone = devices == 1 or place_of() is not None
    module = f"gpam_suite.run.{'worker' if alone else 'launch'}"
    command = [sys.executable, "-m", module, str(folder), str(data)]
    return [*_DEAF, *command] if "SUBMITIT_EXECUTOR" in os.environ else command
