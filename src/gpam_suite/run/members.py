"""Where the members of a sweep stand, read from their folders: status, update, loss and time left."""

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpam_suite.common.formatting import MISSING, duration
from gpam_suite.records.folder import HISTORY, RECORD

_CONFIG = "config.yaml"
_TAIL = 1 << 16  # bytes of a history that are read: its last hundred rows or so
SILENT = 600.0  # seconds without a word after which a member is called silent
QUEUED, RUNNING = "queued", "running"
HEAD = ("Member", "Status", "Update", "Loss (bits)", "Validation", "Left")


@dataclass(frozen=True)
class Member:
    """One run: ``update`` of ``updates``, losses in bits a token (training now, best validation), seconds left."""

    name: str
    status: str
    update: int | None = None
    updates: int | None = None
    loss: float | None = None
    validation: float | None = None
    left: float | None = None

    def cells(self) -> list[str]:
        """As a line below :data:`HEAD`."""
        update = MISSING if self.update is None else f"{self.update}/{self.updates or '?'}"
        losses = [MISSING if loss is None else f"{loss:.3f}" for loss in (self.loss, self.validation)]
        return [self.name, self.status, update, *losses, MISSING if self.left is None else duration(self.left)]


def read_member(folder: Path, since: float = -math.inf) -> Member:
    """The member that writes to ``folder``; what it left there before ``since`` counts only if it had finished."""
    name = f"{folder.parent.name} {folder.name.partition('-')[0]}"
    started, ended = _changed(folder / _CONFIG), _changed(folder / RECORD)
    if ended is not None and (started is None or ended >= started):
        status = json.loads((folder / RECORD).read_text(encoding="utf-8"))["status"]
        if status == "finished" or ended >= since:
            return _with_history(name, status, folder)
    if started is None or started < since:
        return Member(name, QUEUED)
    quiet = time.time() - max(started, _changed(folder / HISTORY) or started)
    status = RUNNING if quiet < SILENT else f"silent for {duration(quiet)}"
    return _with_history(name, status, folder)


def _changed(path: Path) -> float | None:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None


def _with_history(name: str, status: str, folder: Path) -> Member:
    rows = _last_rows(folder / HISTORY)
    trained = [row for row in rows if row.get("split") == "train" and row.get("update") is not None]
    validated = [row["loss_bits"] for row in rows if row.get("split") == "valid" and row.get("loss_bits") is not None]
    config = yaml.safe_load((folder / _CONFIG).read_text(encoding="utf-8")) if (folder / _CONFIG).is_file() else {}
    updates = config.get("fairseq", {}).get("optimization", {}).get("max_update")
    update, loss = (trained[-1]["update"], trained[-1].get("loss_bits")) if trained else (None, None)
    left = seconds_left(trained, updates) if status == RUNNING and updates else None
    return Member(name, status, update, updates, loss, min(validated, default=None), left)


def _last_rows(path: Path) -> list[dict[str, Any]]:
    """Rows at the end of a history that another process may be writing."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL))
        lines = file.read().split(b"\n")[1 if size > _TAIL else 0 : -1]
    return [json.loads(line) for line in lines]


def seconds_left(trained: Sequence[dict[str, Any]], updates: int) -> float | None:
    """Training seconds of the updates that are left, at the pace of the last rows; None before there is a pace.

    Each row's ``train_seconds`` are those since the row before.
    """
    recent = trained[-10:]
    done = recent[-1]["update"] - recent[0]["update"] if recent else 0
    if done <= 0:
        return None
    spent = sum(row.get("train_seconds") or 0.0 for row in recent[1:])
    return spent / done * (updates - recent[-1]["update"])


def summary(members: Sequence[Member]) -> str:
    """``2 of 8 finished, 1 diverged, 2 running, 3 queued``."""
    counts = Counter(member.status.partition(" ")[0] for member in members)
    finished = counts.pop("finished", 0)
    others = [f"{counts[status]} {status}" for status in ("failed", "diverged", "running", "silent", "queued")]
    return ", ".join([f"{finished} of {len(members)} finished", *(text for text in others if text[0] != "0")])
