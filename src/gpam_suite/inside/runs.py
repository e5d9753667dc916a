"""Trained runs: a JSON for each run that still has its checkpoint."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from gpam.errors import UsageError
from gpam_suite.config.compose import stored
from gpam_suite.config.run_paths import CONFIG
from gpam_suite.data import Prepared
from gpam_suite.evaluate.trained import checkpoint_of, open_trained
from gpam_suite.inside import store
from gpam_suite.inside.look import look
from gpam_suite.records.folder import Record, read_records

log = logging.getLogger(__name__)


def analyse_runs(
    results: Path, paths: Any, counts: Mapping[str, int], experiment: str | None, *, again: bool
) -> Iterator[Path]:
    """Look at every finished run below ``results``; yields the files written.

    A run whose checkpoint or data is not there is named and left out; an analysis made before stays as it is, and is
    made anew with ``again``. The first seed of each model also leaves the weight maps of one text.
    """
    finished = [record for record in read_records(results, experiment) if record["status"] == "finished"]
    first_seed: dict[Path, int] = {}
    for record in finished:
        group = record.folder.parent
        first_seed[group] = min(record["seed"], first_seed.get(group, record["seed"]))

    def work(record: Record) -> dict[str, Any]:
        if record["task"] not in counts:
            raise UsageError(f"a run of task '{record['task']}', which has nothing to look at here")
        maps = record["seed"] == first_seed[record.folder.parent]
        return {**facts(record), **look(*opened(record, paths), counts[record["task"]], maps=maps)}

    return each_run(results, finished, store.FOLDER, work, lambda found: not again)


def each_run(
    results: Path,
    finished: Sequence[Record],
    folder: str,
    work: Callable[[Record], dict[str, Any]],
    kept: Callable[[dict[str, Any]], bool],
) -> Iterator[Path]:
    """Do ``work`` for each of ``finished`` and leave what it finds as ``<results>/<folder>/<path of the run>.json``.

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
        yield store.write(path, found)


def facts(record: Record) -> dict[str, Any]:
    """What tells a run's numbers from those of others."""
    own = {key: record[key] for key in ("experiment", "task", "model", "seed", "config_hash")}
    return {**own, "checkpoint": record["protocol"]["checkpoint"]}


def opened(record: Record, paths: Any) -> tuple[nn.Module, Any, Prepared]:
    """The trained model of a run, on the CPU and in evaluation, its task and its data.

    Raises:
        UsageError: one of them is not there.
    """
    config = record.folder / CONFIG
    if config.is_file() and not checkpoint_of(record.folder, stored(config).evaluation.checkpoint).is_file():
        raise UsageError("its checkpoint is not here (checkpoints are not in git): train it again to look at it")
    run = open_trained(record.folder, paths, cpu=True)
    return run.model(), run.task, run.prepared
