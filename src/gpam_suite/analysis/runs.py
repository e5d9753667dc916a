"""Trained runs: a JSON for each run that still has its checkpoint."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from gpam.errors import UsageError
from gpam_suite.analysis import store
from gpam_suite.analysis.look import look
from gpam_suite.analysis.models import checkpoint_of, trained
from gpam_suite.records import Record, read_records
from gpam_suite.training.place import CONFIG

log = logging.getLogger(__name__)


def analyse_runs(
    results: Path, paths: Any, counts: Mapping[str, int], experiment: str | None, *, again: bool
) -> Iterator[Path]:
    """Look at every finished run below ``results``; yields the files written.

    A run whose checkpoint or data is not there is named and left out; an analysis made before stays as it is, and is
    made
    anew with ``again``. The first seed of each model also leaves the weight maps of one text.
    """
    finished = [record for record in read_records(results, experiment) if record["status"] == "finished"]
    first_seed: dict[Path, int] = {}
    for record in finished:
        group = record.folder.parent
        first_seed[group] = min(record["seed"], first_seed.get(group, record["seed"]))
    for number, record in enumerate(finished, start=1):
        path, name = store.path_of_run(results, record), record.folder.relative_to(results)
        if not again and (store.read(path) or {}).get("config_hash") == record["config_hash"]:
            log.info("[%d/%d] %s: analysed before", number, len(finished), name)
            continue
        try:
            maps = record["seed"] == first_seed[record.folder.parent]
            found = _analyse(record, paths, counts, maps)
        except UsageError as error:
            log.warning("[%d/%d] %s: skipped, %s", number, len(finished), name, error)
            continue
        log.info("[%d/%d] %s", number, len(finished), name)
        yield store.write(path, found)


def _analyse(record: Record, paths: Any, counts: Mapping[str, int], maps: bool) -> dict[str, Any]:
    config = record.folder / CONFIG
    if config.is_file() and not checkpoint_of(record.folder, OmegaConf.load(config)).is_file():
        raise UsageError("its checkpoint is not here (checkpoints are not in git): train it again to look at it")
    facts = {key: record[key] for key in ("experiment", "task", "model", "seed", "config_hash")}
    if record["task"] not in counts:
        raise UsageError(f"a run of task '{record['task']}', which has nothing to look at here")
    found = look(*trained(record.folder, paths), counts[record["task"]], maps=maps)
    return {**facts, "checkpoint": record["protocol"]["checkpoint"], **found}
