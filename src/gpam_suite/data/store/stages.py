"""Finished stages of preparations in ``<paths.data>/stages``, each found again by what it was made from.

A stage is a folder ``<name>-<key>`` with its files and ``stage.json``. The key is a hash of the stage's name and
version, its options, and the checksums of the texts that it read. So a killed preparation goes on at the stage that it
was in, a changed input or option makes again what depends on it and nothing else, and data sets share what they have in
common (both directions of a translation are tokenised once).
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpam_suite.common.summed import read_summed, summed
from gpam_suite.data.store.atomic import link_or_copy, publish, remove_abandoned, unfinished
from gpam_suite.data.text.lines import file_sha256, sha256
from gpam_suite.data.workers import Workers

log = logging.getLogger(__name__)

STAGES = "stages"
_SUMMARY = "stage.json"


@dataclass(frozen=True)
class Piece:
    """A text (or other file) on the way, with the SHA-256 of its content."""

    path: Path
    digest: str


@dataclass(frozen=True)
class Stage:
    """A finished stage."""

    folder: Path
    summary: dict[str, Any] = field(repr=False)

    @property
    def facts(self) -> dict[str, Any]:
        """What its work returned."""
        return self.summary["facts"]

    def piece(self, name: str) -> Piece:
        """One of its files."""
        return Piece(self.folder / name, self.summary["files"][name]["sha256"])


class Stages:
    """The stages below ``root``, and the processes that work on them."""

    def __init__(self, root: Path, workers: Workers) -> None:
        self.root, self.workers = root / STAGES, workers
        remove_abandoned(root)
        remove_abandoned(self.root)

    def run(self, name: str, version: int, made_from: Mapping[str, Any], work: Callable[[Path], Any]) -> Stage:
        """The stage ``name`` made from ``made_from`` (JSON: options, checksums), by ``work`` where it is not there.

        ``work`` writes its files into the folder it is given and returns facts (JSON).
        """
        identity = json.dumps([name, version, made_from], sort_keys=True, ensure_ascii=False, default=_digest)
        folder = self.root / f"{name}-{sha256(identity.encode())[:16]}"
        if stage := load(folder):
            log.debug("%s: reused", folder.name)
            return stage
        self.root.mkdir(parents=True, exist_ok=True)
        with unfinished(self.root, folder.name) as temporary:
            facts = work(temporary)
            files = {
                path.name: {"sha256": file_sha256(path), "bytes": path.stat().st_size}
                for path in sorted(temporary.iterdir())
            }
            summary = {"stage": name, "facts": facts, "files": files}
            (temporary / _SUMMARY).write_text(summed(summary), encoding="utf-8")
            publish(temporary, folder, lambda found: load(found) is not None)
        return Stage(folder, summary)


def load(folder: Path) -> Stage | None:
    """The stage in ``folder``; None where it is not there, or not byte for byte what was written, and has to be made
    again."""
    try:
        summary = read_summed((folder / _SUMMARY).read_text(encoding="utf-8"))
        spoilt = [name for name, of in summary["files"].items() if file_sha256(folder / name) != of["sha256"]]
        why = f"{', '.join(spoilt)} changed after it was made" if spoilt else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = f"{_SUMMARY}: {error}"
    if why:
        log.warning("%s is made again: %s", folder, why)
        return None
    return Stage(folder, summary)


def place(piece: Piece, target: Path) -> None:
    """``piece`` under another name, without a copy where the file system has links."""
    link_or_copy(piece.path, target)


def _digest(value: Any) -> str:
    if isinstance(value, Piece):
        return value.digest
    raise TypeError(f"{value!r} cannot be part of a stage's key")
