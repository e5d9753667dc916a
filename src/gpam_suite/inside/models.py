"""Models to look into: of trained runs, one after the other, and such as have not been trained."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401

from fairseq import tasks, utils
from omegaconf import DictConfig
from torch import nn

from gpam.errors import UsageError
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.data import Prepared, prepare
from gpam_suite.data.prepared import fill_paths
from gpam_suite.evaluate.trained import Trained, checkpoint_of, open_trained
from gpam_suite.records import store
from gpam_suite.records.folder import Record, folders_of_runs, read_records

log = logging.getLogger(__name__)


def each_run(
    results: Path,
    experiment: str | None,
    folder: str,
    work: Callable[[Record], dict[str, Any]],
    kept: Callable[[dict[str, Any]], bool],
) -> Iterator[Path]:
    """Do ``work`` for each finished run below ``results``, or of one experiment, and leave what it finds, behind what
    tells the run from others, as ``<results>/<folder>/<path of the run>.json``.

    A run that ``work`` refuses with a UsageError is named and left out. What was found before of the same run stays
    where ``kept`` says so. Yields the files written.

    Raises:
        UsageError: no run at all, or no such experiment.
    """
    records = read_records(results, experiment)
    if not folders_of_runs(results):
        raise UsageError(f"got {results}, which has no runs, wanted a results folder with trained ones in runs/")
    finished = [record for record in records if record["status"] == "finished"]
    for number, record in enumerate(finished, start=1):
        path, name = store.path_of_run(results, record, folder), record.folder.relative_to(results)
        before = store.read(path)
        if before and store.is_of(before, record) and kept(before):
            log.info("[%d/%d] %s: done before", number, len(finished), name)
            continue
        try:
            found = work(record)
        except UsageError as error:
            log.warning("[%d/%d] %s: skipped, %s", number, len(finished), name, error)
            continue
        log.info("[%d/%d] %s", number, len(finished), name)
        yield store.write(path, {**store.facts(record), **found})


def opened(record: Record, paths: Any) -> Trained:
    """A run whose models are put on the CPU, where its checkpoint is there.

    Raises:
        UsageError: its checkpoint or its data is not there.
    """
    if not checkpoint_of(record.folder, record["protocol"]["checkpoint"]).is_file():  # before its data is prepared
        raise UsageError("its checkpoint is not here (none is in git): delete its folder and train again to look at it")
    return open_trained(record.folder, paths, cpu=True)


def untrained(cfg: DictConfig, paths: Any) -> tuple[nn.Module, Any, Prepared]:
    """The model of ``cfg`` as it is before its first update, in evaluation, its task and its data."""
    prepared = prepare(cfg.dataset, cfg.preprocessing, paths)
    complete = fairseq_config(cfg)
    fill_paths(complete, Path("unused"), prepared)
    task = tasks.setup_task(complete.task)
    utils.set_torch_seed(complete.common.seed)  # as fairseq's train does before it builds the model
    return task.build_model(complete.model).float().eval(), task, prepared
