"""``docs/reliability.md``: the figures in its last column are those of the records that ``make soak`` left."""

import datetime
import json
import pkgutil
import re
import time
from pathlib import Path
from typing import Any

from gpam_suite.common.files import write_atomically
from gpam_suite.common.places import ROOT
from gpam_suite.records import environment
from soak.parts import Part, named

PAGE = ROOT / "docs" / "reliability.md"
RECORDS = ROOT / "results" / "reliability.json"
"""Name of a part to its record."""
_ROW = re.compile(r"^\| (?P<promise>.+) \| (?P<test>`[^`]+`) \| .*`make soak PARTS=(?P<part>[\w-]+)`.* \|$", re.M)


def soak(part: Part) -> Path:
    """Do the part's work and leave its record; a broken promise raises, and an earlier record goes."""
    (promise,) = (row["promise"] for row in _ROW.finditer(PAGE.read_text(encoding="utf-8")) if row["part"] == part.name)
    _keep(part, None)
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    record = {
        "part": part.name,
        "promise": promise,
        "figures": pkgutil.resolve_name(part.work)(),
        "command": f"make soak PARTS={part.name}",
        "started": started.isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - clock, 1),
        "versions": environment.versions(),
        "hardware": environment.hardware(),
        "git": environment.git(),
    }
    return _keep(part, record)


def page() -> str:
    """The page's text, with the figures of the records in every row that names a part."""

    def row(found: re.Match) -> str:
        return f"| {found['promise']} | {found['test']} | {_figure(*named(found['part']))} |"

    return _ROW.sub(row, PAGE.read_text(encoding="utf-8"))


def _figure(part: Part) -> str:
    """The sentence with the part's figures, and how long they took."""
    record = _records().get(part.name)
    if record is None:
        return f"not run yet: `make soak PARTS={part.name}`"
    return f"{part.figure.format(**record['figures'])} (`{record['command']}`, {record['seconds']:,.0f} s)"


def _records() -> dict[str, Any]:
    return json.loads(RECORDS.read_text(encoding="utf-8"))


def _keep(part: Part, record: dict[str, Any] | None) -> Path:
    """Put ``record`` in the place of the part's earlier one; None takes that away."""
    records = {name: kept for name, kept in _records().items() if name != part.name}
    if record is not None:
        records[part.name] = record
    text = json.dumps(dict(sorted(records.items())), indent=1, ensure_ascii=False, allow_nan=False)
    return write_atomically(RECORDS, text + "\n")
