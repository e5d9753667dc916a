"""The data stage as a whole: find or make the finished folder that belongs to a data set and its preprocessing."""

import importlib.metadata
import json
import logging
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.files import sha256
from gpam_suite.common.options import whole_number
from gpam_suite.common.tasks import LM
from gpam_suite.data.build import build
from gpam_suite.data.dataset import check_dataset, check_fit
from gpam_suite.data.kinds.sources import KINDS
from gpam_suite.data.options import check_preprocessing, plain
from gpam_suite.data.prepared import MANIFEST, Prepared
from gpam_suite.data.store.atomic import make, remove_abandoned, unchanged, unwritable
from gpam_suite.data.store.download import has_checksums
from gpam_suite.data.store.stages import Stages
from gpam_suite.data.workers import Workers

log = logging.getLogger(__name__)

VERSION = 2  # of the pipeline; raise it when the same input gives another output


def prepare(dataset: Any, preprocessing: Any, paths: Any) -> Prepared:
    """Prepare a data set, or reuse a finished preparation made from the same inputs.

    Args:
        dataset: node of ``configs/dataset``: name, task (``lm``, ``nmt`` or ``recall``), kind, and what the kind needs.
        preprocessing: the options that :func:`gpam_suite.data.options.check_preprocessing` knows.
        paths: ``data`` (folder of the preparations, created), ``mirror`` (folder with local copies of public data
            sets, or null), ``offline`` (ask no network) and ``workers`` (processes; null: one a core).

    Returns:
        The preparation in ``<paths.data>/<dataset.name>-<hash>``. The hash covers both nodes, the checksums of the
        raw files and the versions of what made the text.

    Raises:
        UsageError: a wrong option, missing or unsuitable text, data that is not what the node expects.
        OSError: a disk without room; finished stages are kept.
    """
    dataset, options, paths = check_dataset(dataset), check_preprocessing(preprocessing), plain(paths, "paths")
    check_fit(dataset, options)
    root = _root(paths)
    source = KINDS[dataset["kind"]].open(dataset, paths)
    versions = _versions(options)
    identity = {"pipeline": VERSION, "dataset": dataset, "preprocessing": options}
    identity |= {"source": source.fingerprint, "versions": versions}
    digest = sha256(json.dumps(identity, sort_keys=True, ensure_ascii=False).encode())[:12]
    folder = root / f"{dataset['name']}-{digest}"
    if manifest := unchanged(folder, MANIFEST):
        log.info("%s: reusing the finished preparation %s", dataset["name"], folder)
        return Prepared(folder, manifest)

    started = time.monotonic()

    def work(temporary: Path) -> dict[str, Any]:
        manifest = {
            **{key: dataset.get(key) for key in ("name", "label", "task", "source", "target", "licence", "citation")},
            "language": (dataset.get("language") or "en") if dataset["task"] == LM.name else None,
            "dataset": dataset,
            "preprocessing": options,
            "pipeline": VERSION,
            "fingerprint": source.fingerprint,
            "origin": source.origin,
        }
        if source.build:
            manifest |= source.build(temporary)
        else:
            number = paths.get("workers")
            with Workers(None if number is None else whole_number(number, 1, "paths.workers")) as workers:
                stages = Stages(root, workers)
                manifest |= build(dataset, options, source.raw(stages), stages, temporary)
        fairseq = importlib.metadata.version("fairseq")
        manifest["versions"] = versions | {"fairseq": fairseq, "python": platform.python_version()}
        return manifest | {"seconds": round(time.monotonic() - started, 2)}

    remove_abandoned(root)
    manifest = make(folder, MANIFEST, work)
    log.info("%s: prepared in %.1f s, %s", dataset["name"], manifest["seconds"], folder)
    return Prepared(folder, manifest)


def check_same_data(dataset: Any, preprocessing: Any, paths: Any, checksum: str, run: Path) -> None:
    """Compare the data as it is now with the ``checksum`` of the finished ``run``.

    Text that is not there any more cannot be compared: a line of the log says so, and the run stays finished.

    Raises:
        UsageError: it is other text now.
    """
    if KINDS[dataset.kind].published and has_checksums(plain(dataset, "dataset")):
        return
    try:
        now = prepare(dataset, preprocessing, paths).manifest["checksum"]
    except UsageError as error:
        log.warning("%s is finished, but its data cannot be compared: %s", run, error)
        return
    if now != checksum:
        raise UsageError(
            f"{run} is finished, but its data has changed since: the text's checksum was {checksum[:12]}, now it is "
            f"{now[:12]}; give the new text an experiment_name of its own, or delete that folder to train again"
        )


def _root(paths: Mapping[str, Any]) -> Path:
    """``paths.data``, created. It need not be writable where a finished preparation is only reused."""
    if not paths.get("data"):
        raise UsageError("paths.data is missing: wanted the folder for prepared data")
    root = Path(paths["data"]).expanduser().absolute()
    if os.pathsep in str(root):
        raise UsageError(f"paths.data: {root} has a '{os.pathsep}', which divides folders for fairseq; give another")
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(root, error) from error
    return root


def _versions(options: Mapping[str, Any]) -> dict[str, str]:
    """Versions of the libraries that the prepared text depends on."""
    used = ["sacremoses"] if options["tokenizer"] == "moses" else []
    used += [options["bpe"].replace("_", "-")] if options["bpe_size"] else []
    return {name: importlib.metadata.version(name) for name in used}
