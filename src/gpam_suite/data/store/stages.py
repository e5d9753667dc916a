"""Finished stages of preparations in ``<paths.data>/stages``, each found again by what it was made from.

A stage is a folder ``<name>-<key>`` with its files and ``stage.json``. The key is a hash of the stage's name, the
version of all stages, its options, and the checksums of the texts that it read. So a killed preparation goes on at the
stage that it was in, a changed input or option makes again what depends on it and nothing else, and data sets share
what they have in common (both directions of a translation are tokenised once).
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpam_suite.common.files import sha256
from gpam_suite.data.store.atomic import described, make, remove_abandoned, unchanged
from gpam_suite.data.workers import Workers

STAGES = "stages"
_SUMMARY = "stage.json"
_VERSION = 2  # of the stages; raise it when the same input gives another output


@dataclass(frozen=True)
class Piece:
    """A text (or other file) on the way, with the SHA-256 of its content."""

    path: Path
    digest: str

    def place(self, target: Path) -> None:
        """Put it under another name, without a copy where the file system has links."""
        target.parent.mkdir(exist_ok=True)
        try:
            os.link(self.path, target)
        except OSError:
            shutil.copyfile(self.path, target)


@dataclass(frozen=True)
class Stage:
    """A finished stage: what its work returned, and its files."""

    folder: Path
    facts: dict[str, Any]
    files: dict[str, Any] = field(repr=False)

    def piece(self, name: str) -> Piece:
        """One of its files."""
        return Piece(self.folder / name, self.files[name]["sha256"])


class Stages:
    """The stages below ``root``, and the processes that work on them."""

    def __init__(self, root: Path, workers: Workers) -> None:
        self.root, self.workers = root / STAGES, workers
        remove_abandoned(self.root)

    def run(self, name: str, made_from: Mapping[str, Any], work: Callable[[Path], Any]) -> Stage:
        """The stage ``name`` made from ``made_from`` (JSON: options, checksums), by ``work`` where it is not there.

        ``work`` writes its files into the folder it is given and returns facts (JSON).
        """
        identity = json.dumps([name, _VERSION, made_from], sort_keys=True, ensure_ascii=False, default=_digest)
        folder = self.root / f"{name}-{sha256(identity.encode())[:16]}"

        def made(temporary: Path) -> dict[str, Any]:
            return {"stage": name, "facts": work(temporary), "files": described(temporary)}

        summary = unchanged(folder, _SUMMARY) or make(folder, _SUMMARY, made)
        return Stage(folder, summary["facts"], summary["files"])


def _digest(value: Any) -> str:
    if isinstance(value, Piece):
        return value.digest
    raise TypeError(f"{value!r} cannot be part of a stage's key")
