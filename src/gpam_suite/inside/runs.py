"""Trained runs, one after the other: a JSON for each that still has its checkpoint."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.evaluate.trained import Trained, checkpoint_of, open_trained
from gpam_suite.inside import store
from gpam_suite.records.folder import Record, read_records

log = logging.getLogger(__name__)


def finished_runs(results: Path, experiment: str | None) -> list[Record]:
    """The finished runs below ``results``, or of one experiment.

    Raises:
        UsageError: no such experiment.
    """
    return [record for record in read_records(results, experiment) if record["status"] == "finished"]


def each_run(
    results: Path,
    finished: list[Record],
    folder: str,
    work: Callable[[Record], dict[str, Any]],
    kept: Callable[[dict[str, Any]], bool],
) -> Iterator[Path]:
    """Do ``work`` for each of ``finished`` and leave what it finds, behind what tells the run from others, as
    ``<results>/<folder>/<path of the run>.json``.

    A run that ``work`` refuses with a UsageError is named and left out. What was found before for the same
    configuration stays where ``kept`` says so. Yields the files written.
    """
    for number, record in enumerate(finished, start=1):
        path, name = store.path_of_run(results, record, folder), record.folder.relative_to(results)
        before = store.read(path)
        if before and before.get("config_hash") == record["config_hash"] and kept(before):
            log.info("[%d/%d] %s: done before", number, len(finished), name)
            continue
        try:
            found = work(record)
        except UsageError as error:
            log.warning("[%d/%d] %s: skipped, %s", number, len(finished), name, error)
            continue
        log.info("[%d/%d] %s", number, len(finished), name)
        facts = {key: record[key] for key in ("experiment", "task", "model", "seed", "config_hash")}
        yield store.write(path, {**facts, "checkpoint": record["protocol"]["checkpoint"], **found})


def opened(record: Record, paths: Any) -> Trained:
    """A run whose models are put on the CPU, where its checkpoint is there.

    Raises:
        UsageError: its checkpoint or its data is not there.
    """
    if not checkpoint_of(record.folder, record["protocol"]["checkpoint"]).is_file():  # before its data is prepared
        raise UsageError("its checkpoint is not here (checkpoints are not in git): train it again to look at it")
    return open_trained(record.folder, paths, cpu=True)
