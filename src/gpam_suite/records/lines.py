"""The two files of a run's folder that have an object a line: its history, and the scores of its test set."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common import strict_json
from gpam_suite.common.files import write_atomically
from gpam_suite.records import archives

HISTORY, SCORES = "metrics.jsonl", "scores.jsonl"


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(strict_json.with_nulls(row), ensure_ascii=False, allow_nan=False) + "\n"


def append_history(folder: Path, row: Mapping[str, Any]) -> None:
    """Append one row to ``folder/metrics.jsonl``; the torn line a killed run left at its end is cut off first."""
    path = folder / HISTORY
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
        file.write(_line(row).encode("utf-8"))


def cut_history(folder: Path, update: int) -> None:
    """Drop the rows behind ``update``, which a run that goes on from there writes again."""
    rows = read_history(folder)
    kept = [row for row in rows if row["update"] <= update]
    if len(kept) < len(rows):
        write_atomically(folder / HISTORY, "".join(map(_line, kept)))


_ADVICE = "restore it from git, or delete its folder and run again"


def _read_lines(path: Path, *, torn_end_allowed: bool) -> list[dict[str, Any]]:
    """The rows of ``path`` in order, [] where there is no such file."""
    if not archives.is_file(path):
        return []
    lines = archives.read_bytes(path).split(b"\n")
    torn = lines.pop()  # what follows the last newline: empty unless the writer was killed
    if torn and not torn_end_allowed:
        raise UsageError(f"{path} is cut off in its last line: {_ADVICE}.")
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            row, wrong = strict_json.loads(line), ""
        except ValueError as error:
            row, wrong = None, f" ({error})"
        if not isinstance(row, dict):
            raise UsageError(f"{path} line {number} is not a JSON object{wrong}: {_ADVICE}.")
        rows.append(row)
    return rows


def read_history(folder: Path, split: str | None = None) -> list[dict[str, Any]]:
    """The rows of ``folder/metrics.jsonl`` in order, [] when there is none; of one ``split`` where one is named (train,
    valid and those of :mod:`gpam_suite.records.history_rows`). A torn last line is dropped, no other.

    Raises:
        UsageError: another line is not a JSON object, or names no update (a whole number).
    """
    rows = _read_lines(folder / HISTORY, torn_end_allowed=True)
    for number, row in enumerate(rows, start=1):
        if type(row.get("update")) is not int:
            raise UsageError(f"{folder / HISTORY} line {number} names no update: {_ADVICE}.")
    return rows if split is None else [row for row in rows if row.get("split") == split]


def write_scores(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write ``folder/scores.jsonl`` atomically: one row a unit of the test set, in its order."""
    return write_atomically(folder / SCORES, "".join(_line(row) for row in rows))


def read_scores(folder: Path) -> list[dict[str, Any]]:
    """The rows of ``folder/scores.jsonl``, [] when there is none.

    Raises:
        UsageError: the file is cut off or a line is not a JSON object.
    """
    return _read_lines(folder / SCORES, torn_end_allowed=False)
