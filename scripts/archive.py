"""One archive of your runs, histories, hypotheses and analyses, without checkpoints: ``FOLDER-archive.tar.xz``."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.config.identity import CONFIG
from gpam_suite.data.second_test import SECOND_TEST
from gpam_suite.records import archives
from gpam_suite.records.folder import RECORD
from gpam_suite.run.command_line import Parser, guarded, user_path

LEFT_OUT = {"checkpoints", "wandb"}  # of a run's folder
SUFFIXES = {".json", ".jsonl", ".yaml", ".txt"}


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("results", nargs="?", type=user_path, default="results/local", help="default: %(default)s")
    results = parser.parse_args().results.resolve()
    if not (results / "runs").is_dir():
        raise UsageError(f"got '{results}', wanted a results folder that has runs")
    if packed := [path.name for folder in ("", "*/") for path in results.glob(f"{folder}*{archives.SUFFIX}")]:
        raise UsageError(f"got '{results}', of which a part is packed already ({packed[0]}): copy the folder as it is")
    files = {path.relative_to(results).as_posix(): path.read_bytes() for path in _kept(results)}
    if not any(name.endswith(f"/{RECORD}") for name in files):
        raise UsageError(f"got '{results}', in which no run has ended: there is nothing to archive")
    archive = archives.archive_of(results.with_name(f"{results.name}-archive"))  # its runs are not those of results
    before = archives.unpack(archive) if archive.is_file() else {}
    if lost := next((name for name in before if name.endswith(f"/{RECORD}") and name not in files), None):
        raise UsageError(f"{archive} holds {lost}, which is not in '{results}' any more: move it, or remove it")
    print(write_atomically(archive, archives.pack(files)))


def _kept(results: Path) -> Iterator[Path]:
    """What is small, also in folders that are linked to, each once."""
    seen: set[str] = set()
    for place, folders, names in os.walk(results, followlinks=True):
        if (here := os.path.realpath(place)) in seen:
            folders.clear()
            continue
        seen.add(here)
        if {RECORD, CONFIG} & set(names):
            folders[:] = [folder for folder in folders if folder not in LEFT_OUT]
        wanted = (name for name in names if Path(name).suffix in SUFFIXES or name.startswith(SECOND_TEST))
        yield from (path for name in wanted if (path := Path(place) / name).is_file())


if __name__ == "__main__":
    sys.exit(guarded(main))
