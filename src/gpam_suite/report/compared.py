"""The two sides of a comparison: a run, or all seeds of one model, read from a folder; and what keeps them apart."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.records import archives
from gpam_suite.records.folder import RECORD, Record, read_record
from gpam_suite.stats.aggregate import Aggregate, Row, aggregate

WANTED = (
    "wanted a run's folder (results/local/runs/<experiment>/<model>-<options>/seed<k>-<hash>), or the folder above it "
    "for all its seeds"
)


@dataclass(frozen=True)
class Side:
    """One side: its folder, the row of its seeds, and the seeds' folders that hold no record yet."""

    folder: Path
    row: Row
    unended: tuple[str, ...]

    @property
    def reference(self) -> Record:
        """A record to read what all seeds share from; a finished one if there is any."""
        return (self.row.finished or self.row.records)[0]


def read_side(name: str, given: str) -> Side:
    """The run or group in the folder ``given``; ``name`` (A or B) is what a complaint calls it.

    Raises:
        UsageError: no such folder, no run in it, a broken record, or seeds that do not belong together.
    """
    folder = Path(given)
    ended = sorted(path.parent for path in archives.find(folder, f"seed*/{RECORD}"))
    alone = archives.is_file(folder / RECORD)
    if not given or not (folder.is_dir() or alone or ended):
        raise UsageError(f"{name}: got {given or 'nothing'}{', which is no folder' if given else ''}; {WANTED}.")
    if alone:
        return Side(folder, _one_row(name, [read_record(folder)]), ())
    if not ended:
        raise UsageError(f"{name}: {folder} holds no run that has ended (no {RECORD}); {WANTED}.")
    unended = tuple(path.name for path in sorted(folder.glob("seed*")) if path.is_dir() and path not in ended)
    return Side(folder, _one_row(name, [read_record(path) for path in ended]), unended)


def _one_row(name: str, records: list[Record]) -> Row:
    rows = aggregate(records).rows
    if len(rows) > 1:
        held = "; ".join(f"{row.label} ({row.records[0].folder.name})" for row in rows)
        raise UsageError(f"{name}: the folder holds runs of several settings: {held}; name one of these runs' folders.")
    return rows[0]


def obstacles(a: Side, b: Side) -> list[str]:
    """Why the numbers of the two do not compare: task, data set, or fields of data and protocol, with both values.

    The recipe may differ: on one test set under one protocol, that is a question a comparison can answer.
    """
    one, other = a.reference, b.reference
    for field in ("task", "dataset"):
        if one[field] != other[field]:
            return [f"{field} is {one[field]} in A but {other[field]} in B"]
    if not (a.row.finished and b.row.finished):  # a lost run has no number, and its protocol may be unknown
        return []
    facts = [_must_agree(record) for record in (one, other)]
    return [
        f"{key} is {facts[0].get(key, 'missing')} in A but {facts[1].get(key, 'missing')} in B"
        for key in dict.fromkeys([*facts[0], *facts[1]])
        if facts[0].get(key) != facts[1].get(key)
    ]


def _must_agree(record: Record) -> dict[str, Any]:
    return {"data checksum": record["data"]["checksum"]} | {
        f"protocol.{key}": value for key, value in record["protocol"].items()
    }


def table_of(a: Side, b: Side) -> Aggregate:
    """Both sides as the rows of one table whose baseline is A, for its differences and tests (B minus A)."""
    rows = replace(a.row, label=f"A ({a.row.label})"), replace(b.row, label=f"B ({b.row.label})")
    return Aggregate(b.reference["experiment"], b.reference["task"], rows, rows[0])
