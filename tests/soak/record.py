"""One part of ``make soak``, run and written down in ``results/reliability/<part>.json``."""

import datetime
import json
import time
from pathlib import Path
from typing import Any

from gpam_suite.common.files import write_atomically
from gpam_suite.records import environment
from soak.part import Figures, Part

RECORDS = environment.ROOT / "results" / "reliability"


def soak(part: Part) -> Path:
    """Do the part's work and leave its record; a broken promise raises, and an earlier record goes."""
    path = RECORDS / f"{part.name}.json"
    path.unlink(missing_ok=True)
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    figures: Figures = part.function()()
    record = {
        "part": part.name,
        "promise": part.promise,
        "figures": figures,
        "command": f"make soak PARTS={part.name}",
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 1),
        "versions": environment.versions(),
        "hardware": environment.hardware(),
        "git": environment.git(),
    }
    return write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read(part: Part) -> dict[str, Any] | None:
    """The record of the part's last run, None where there is none."""
    path = RECORDS / f"{part.name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
