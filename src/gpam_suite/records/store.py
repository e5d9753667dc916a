"""``<results>/analysis/`` and ``<results>/perturbed/``: the numbers that figures and findings are made of, as JSON."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.common.strict_json import read_summed, summed, with_nulls
from gpam_suite.records import archives
from gpam_suite.records.folder import Record

FOLDER, PERTURBED = "analysis", "perturbed"
"""Below a results folder."""
_DIGITS = 6  # significant: fewer than differ between machines, more than any figure shows


def path_of_run(results: Path, record: Record, folder: str = FOLDER) -> Path:
    """Where the analysis of a run is kept: the run's own path below ``analysis/`` (or another ``folder``)."""
    return Path(results) / folder / record.folder.relative_to(Path(results)).with_name(f"{record.folder.name}.json")


def path_of(results: Path, name: str) -> Path:
    """``<results>/analysis/<name>.json``."""
    return Path(results) / FOLDER / f"{name}.json"


def write(path: Path, found: dict[str, Any]) -> Path:
    """Write ``found`` atomically with its checksum, floats to six significant digits; NaN and infinity become null."""
    return write_atomically(path, summed(with_nulls(found, _DIGITS)))


def read(path: Path) -> dict[str, Any] | None:
    """What :func:`write` left, or another that wrote a checksum beside it; None when there is nothing.

    Raises:
        UsageError: the file is not as it was written.
    """
    if not archives.is_file(path):
        return None
    try:
        return read_summed(archives.read_bytes(path))
    except ValueError as error:
        raise UsageError(f"{path} is not as it was written ({error}): delete it and make it again") from None


def facts(record: Record) -> dict[str, Any]:
    """What tells the run that numbers are of from others; they are kept behind it."""
    told = {key: record[key] for key in ("experiment", "task", "model", "seed", "config_hash")}
    return {**told, "checkpoint": record["protocol"]["checkpoint"], "checkpoint_sha256": record.checkpoint}


def is_of(found: dict[str, Any], record: Record) -> bool:
    """Whether numbers are of this very run: of its configuration, and of its checkpoint, where both say which."""
    known = found.get("checkpoint_sha256"), record.checkpoint
    return found.get("config_hash") == record["config_hash"] and (None in known or known[0] == known[1])


def read_runs(results: Path, records: Iterable[Record], folder: str = FOLDER) -> dict[Path, dict[str, Any]]:
    """Folder of a run to its analysis (below ``folder``), of those that have one that :func:`is_of` them."""
    found = {}
    for record in records:
        analysis = read(path_of_run(results, record, folder))
        if analysis is not None and is_of(analysis, record):
            found[record.folder] = analysis
    return found
