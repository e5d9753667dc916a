"""Whether data is still what a finished run was made from."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.data.pipeline import prepare

log = logging.getLogger(__name__)

_PUBLISHED = ("files", "corpora", "documents", "characters")
"""Kinds of data set whose texts have one checksum for ever, which is compared whenever they are obtained."""


def check_same_data(dataset: Any, preprocessing: Any, paths: Any, checksum: str, run: Path) -> None:
    """Compare the data as it is now with the ``checksum`` of the finished ``run``.

    Text that is not there any more cannot be compared: a line of the log says so, and the run stays finished.

    Raises:
        UsageError: it is other text now.
    """
    if dataset.kind in _PUBLISHED:
        return
    try:
        now: Mapping[str, Any] = prepare(dataset, preprocessing, paths).manifest
    except UsageError as error:
        log.warning("%s is finished, but its data cannot be compared: %s", run, error)
        return
    if now["checksum"] != checksum:
        raise UsageError(
            f"{run} is finished, but its data has changed since: the text's checksum was {checksum[:12]}, now it is "
            f"{now['checksum'][:12]}; give the new text an experiment_name of its own, or delete that folder to train "
            "again"
        )
