"""One run from its configuration to its record."""

import contextlib
import datetime
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gpam.attention.backends.compiled import library
from gpam.errors import UsageError
from gpam_suite.common.files import file_sha256, remove_unfinished, write_atomically
from gpam_suite.common.lock import locked
from gpam_suite.common.options import nonempty, one_of, several
from gpam_suite.common.stopping import Preempted, passed_on, stop_now, when_stopped
from gpam_suite.common.strict_json import read_summed, summed
from gpam_suite.common.tasks import TASKS
from gpam_suite.config.compose import check, fast, folder_of, identity, overrides_label
from gpam_suite.config.device_batches import check_visible, devices
from gpam_suite.config.fairseq_tree import fairseq_config, model_options
from gpam_suite.config.identity import CONFIG, config_hash
from gpam_suite.data import Prepared, check_same_data, prepare
from gpam_suite.data.options import SPLITS
from gpam_suite.data.second_test import check_same_second_test, keep_second_test, second_test_file
from gpam_suite.evaluate.limits import check_lengths, left_out
from gpam_suite.evaluate.references import check_references
from gpam_suite.evaluate.trained import checkpoint_of
from gpam_suite.records import environment
from gpam_suite.records.folder import RECORD, is_finished, read_record, write_record
from gpam_suite.records.history_rows import gradients_and_scalars
from gpam_suite.records.lines import read_history
from gpam_suite.records.schema import PARAMETERS
from gpam_suite.run.outcomes import BEGUN, DIVERGED_EXIT, REFUSED_EXIT, RunDiverged, RunFailed, rank_log, read_outcome
from gpam_suite.run.processes import Place, check_place, first_ended, place_of, workers
from gpam_suite.run.progress import Progress
from gpam_suite.run.tracking import MODES, Tracker

log = logging.getLogger(__name__)
_BEGINNINGS = (
    "fairseq.checkpoint.finetune_from_model",
    "fairseq.model.encoder_embed_path",
    "fairseq.model.decoder_embed_path",
)
"""Options that name a file with a model's first parameters."""
_LOOK_EVERY = 1.0  # seconds between two looks at the history of the worker


def run(cfg: DictConfig) -> float | None:
    """Prepare the data, train, evaluate and record; a finished run is skipped.

    Returns the headline metric; None in a process that is not the first of several (:mod:`gpam_suite.run.processes`).

    Raises:
        UsageError: the configuration, the data or a folder is wrong, or disk or memory ran out; there is no record, and
            the same call goes on.
        RunFailed: training or evaluation ended without a result; the record says why.
        Preempted: it was asked to stop; training was saved, and the same call goes on.
    """
    check(cfg)
    one_of(cfg.tracking.mode, MODES, "tracking.mode")
    for tag in several(cfg.tracking.tags, "tracking.tags"):
        nonempty(tag, "tracking.tags")
    folder = folder_of(cfg)
    place = place_of()
    if place is not None:
        check_place(place, devices(cfg))
    _check_writable(folder)
    if place is not None and place.rank > 0:
        return _follow(cfg, folder, place)
    with locked(folder, wait=False) as ours, _nothing_left_of_a_mistake(folder, ours), when_stopped(stop_now):
        remove_unfinished(folder)
        if is_finished(folder):
            record = read_record(folder)
            check_same_data(cfg.dataset, cfg.preprocessing, cfg.paths, record["data"]["checksum"], folder)
            check_same_second_test(cfg, folder)
            _check_same_beginning(_begins_from(cfg), record.at("data", "begins_from") or {}, folder)
            log.info("already finished: %s", folder)
            code = f"src/gpam/attention/mechanisms/{cfg.model.attention}.py"
            if environment.changed(code, record["git"]):
                log.info("%s has changed since; to train again delete that folder", code)
            return record.headline
        check_visible(cfg, devices(cfg) if place is None else 1)
        for name, path in _beginnings(cfg).items():
            if not path.is_file():
                raise UsageError(f"{name}: there is no file '{path}'")
        keep_second_test(cfg, folder)
        prepared = prepare(cfg.dataset, cfg.preprocessing, cfg.paths)
        return _run(cfg, folder, prepared, ours)


def _run(cfg: DictConfig, folder: Path, prepared: Prepared, ours: Callable[[], bool]) -> float:
    complete = fairseq_config(cfg)
    check_references(cfg.evaluation, prepared, folder)
    check_lengths(cfg.evaluation, complete, prepared, folder, devices(cfg))
    data = {
        "checksum": prepared.manifest["checksum"],
        "name": prepared.manifest["name"],
        "counts": {split: prepared.words(split) for split in SPLITS},
        "left_out": left_out(complete, prepared),
        "begins_from": _begins_from(cfg),
    }
    git = _begun(folder, data)  # before the training, whatever is checked out meanwhile
    (folder / RECORD).unlink(missing_ok=True)  # of a run that was lost, and is tried again
    write_atomically(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(identity(cfg))))
    log.info("run folder: %s", folder)
    if cfg.fairseq.common.cpu and fast(cfg) and library.load() is None:
        log.warning("attention runs without its compiled library, slower; where a C compiler is, make setup builds it")
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    with Tracker(cfg, folder) as tracker:
        outcome = _work(cfg, folder, prepared, ours, tracker)
        ended = started + datetime.timedelta(seconds=time.monotonic() - clock)  # whatever was done to the clock
        record = _record(cfg, folder, data, outcome, git, started, ended)
        write_record(folder, record)
        tracker.finish(record)
    _remove_outcomes(folder)
    metric = TASKS[cfg.dataset.task].headline
    if outcome["status"] != "finished":
        kind = RunDiverged if outcome["status"] == "diverged" else RunFailed
        raise kind(f"{folder} {outcome['status']}: {outcome['reason']} (log: {rank_log(folder, 0)})")
    log.info("%s = %.2f after %.0f s: %s", metric, record["metrics"][metric], time.monotonic() - clock, folder)
    return record["metrics"][metric]


def _work(
    cfg: DictConfig, folder: Path, prepared: Prepared, ours: Callable[[], bool], tracker: Tracker
) -> dict[str, Any]:
    """Train and evaluate in a process of their own; returns its outcome: a status and a reason, or what it found.

    Raises:
        UsageError: the folder is no longer ``ours``: another process may train in one of its name.
    """
    title = f"{cfg.model.name} {cfg.dataset.name} seed {cfg.seed}"
    progress = Progress(folder, title, cfg.fairseq.optimization.max_update)
    _remove_outcomes(folder)
    with workers(cfg, folder, prepared.folder) as started, passed_on(started[0].process) as asked_to_stop:
        while (ended := first_ended(started, _LOOK_EVERY)) is None:
            _check_ours(folder, ours)
            if not asked_to_stop.is_set() and progress.look():
                tracker.update()
    _check_ours(folder, ours)
    outcome, code = read_outcome(folder, ended.rank), ended.process.returncode
    if asked_to_stop.is_set():
        stopped = outcome is not None and outcome["status"] == "stopped"
        raise Preempted(outcome["reason"] if stopped else "it goes on from its last checkpoint")
    progress.look()
    if outcome is None:  # it crashed, was killed, or had no room to say why
        statuses = {REFUSED_EXIT: "refused", DIVERGED_EXIT: "diverged"}
        outcome = {"status": statuses.get(code, "failed"), "reason": ended.last_words()}
    if outcome["status"] == "refused":
        raise UsageError(outcome["reason"])
    return outcome


def _check_ours(folder: Path, ours: Callable[[], bool]) -> None:
    if not ours():
        raise UsageError(f"{folder}, or its .lock, was removed while its run was at work; start again to train anew")


def _beginnings(cfg: DictConfig) -> dict[str, Path]:
    """Option to the file that it names, with a model's first parameters."""
    given = {name: OmegaConf.select(cfg, name) for name in _BEGINNINGS}
    return {name: Path(path) for name, path in given.items() if path}


def _begins_from(cfg: DictConfig) -> dict[str, str]:
    """Option to the SHA-256 of its file, of those that are there."""
    return {name: file_sha256(path) for name, path in _beginnings(cfg).items() if path.is_file()}


def _check_same_beginning(now: dict[str, str], before: dict[str, str], folder: Path) -> None:
    """Refuse a file that first parameters came from and that has changed since; one that is gone, or that was not kept
    account of, cannot be compared."""
    for name, checksum in now.items():
        if before.get(name, checksum) != checksum:
            raise UsageError(
                f"{folder} began from another file: {name} has changed since; put it back, give the new one an "
                "experiment_name of its own, or delete that folder to train again"
            )


def _begun(folder: Path, data: dict[str, Any]) -> dict[str, Any] | None:
    """The code that trains: :func:`environment.git`, ``dirty`` too where the run began with another commit. What it
    began with is kept in the folder.

    Raises:
        UsageError: it would go on with other text than it began with, or from other parameters.
    """
    now = {"checksum": data["checksum"], "begins_from": data["begins_from"], "git": environment.git()}
    if not checkpoint_of(folder, "last").is_file() or not (folder / BEGUN).is_file():
        write_atomically(folder / BEGUN, summed(now))
        return now["git"]
    try:
        before = read_summed((folder / BEGUN).read_bytes())
    except ValueError as error:
        raise UsageError(
            f"{folder / BEGUN} is not as it was written ({error}): remove it to go on without comparing what the run "
            "began with"
        ) from None
    if before["checksum"] != now["checksum"]:
        was, is_now = before["checksum"][:12], now["checksum"][:12]
        raise UsageError(
            f"{folder} has begun with other text: its checksum was {was}, now it is {is_now}; put the text back, give "
            "the new one an experiment_name of its own, or delete that folder to train again"
        )
    _check_same_beginning(now["begins_from"], before["begins_from"], folder)
    return now["git"] and {**now["git"], "dirty": now["git"]["dirty"] or before["git"] != now["git"]}


def _follow(cfg: DictConfig, folder: Path, place: Place) -> None:
    """In a process that is not the first of several: wait until that one has prepared the data and written the
    configuration, then train along, and write nothing. Asked to stop it goes on until that one has saved."""
    if is_finished(folder):
        return
    while not (folder / CONFIG).is_file():  # torchrun and srun stop the others when the first one fails
        time.sleep(0.2)
    prepared = prepare(cfg.dataset, cfg.preprocessing, cfg.paths)
    asked_to_stop = threading.Event()
    with workers(cfg, folder, prepared.folder) as (worker,), when_stopped(asked_to_stop.set):
        failed = worker.process.wait()
    if asked_to_stop.is_set():
        raise Preempted(f"process {place.rank} of {place.world}: the first one says how far the run was")
    if failed:
        raise RunFailed(f"process {place.rank} of {place.world}: {worker.last_words()} (log: {worker.log})")


def _remove_outcomes(folder: Path) -> None:
    for path in folder.glob("outcome*.json"):
        path.unlink()


def _record(
    cfg: DictConfig,
    folder: Path,
    data: dict[str, Any],
    outcome: dict[str, Any],
    git: dict[str, Any] | None,
    started: datetime.datetime,
    ended: datetime.datetime,
) -> dict[str, Any]:
    history = read_history(folder)
    trained = (row for row in history if row.get("split") == "train")
    speeds = [row["tokens_per_second"] for row in trained if row.get("tokens_per_second")]
    return {
        "status": outcome["status"],
        "reason": outcome.get("reason"),
        "experiment": cfg.experiment_name,
        "model": cfg.model.name,
        "model_label": cfg.model.label,
        "options": model_options(cfg),
        "overrides_label": overrides_label(cfg),
        "dataset": cfg.dataset.name,
        "dataset_label": cfg.dataset.label,
        "task": cfg.dataset.task,
        "recipe": cfg.recipe.name,
        "seed": cfg.seed,
        "gpu": cfg.gpu.name,
        "world_size": devices(cfg),
        **{name: outcome.get(name, {}) for name in ("metrics", "protocol", "checksums", "attention_modules")},
        **gradients_and_scalars(history),
        "parameters": outcome.get("parameters", dict.fromkeys(PARAMETERS)),
        "flops": outcome.get("flops"),
        "speed": {
            "train_tokens_per_second": median(speeds) if speeds else None,
            "train_seconds": outcome.get("train_seconds"),
            "evaluate_seconds": outcome.get("evaluate_seconds"),
        },
        "memory": {"peak_bytes": outcome.get("peak_bytes")},
        "data": data,
        "versions": environment.versions(),
        "git": git,
        "hardware": environment.hardware()
        | ({"gpu": None, "gpus": 0} if cfg.fairseq.common.cpu else {})
        | {
            "fast_products": outcome.get("fast_products"),
            "attention_backends": outcome.get("attention_backends"),
        },
        "command": environment.command(),
        "started": started.isoformat(timespec="seconds"),
        "finished": ended.isoformat(timespec="seconds"),
        "updates": outcome.get("updates", max((row.get("update") or 0 for row in history), default=0)),
        "config_hash": config_hash(identity(cfg)),
    }


@contextlib.contextmanager
def _nothing_left_of_a_mistake(folder: Path, ours: Callable[[], bool]) -> Iterator[None]:
    """A run that was refused before it began is none: its folder would be taken for a run that waits."""
    try:
        yield
    except UsageError:
        if ours() and not (folder / CONFIG).is_file():
            for path in (folder / ".lock", *folder.glob(second_test_file(folder, "*").name)):
                path.unlink()
            with contextlib.suppress(OSError):  # of a folder that holds something else
                for empty in (folder, *folder.parents[:3]):  # below runs/EXPERIMENT/MODEL/
                    empty.rmdir()
        raise


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"cannot write the run's folder {folder} ({error.strerror}); set paths.results to a folder that you may "
            "write"
        ) from None
