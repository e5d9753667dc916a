"""One archive of your runs, histories, hypotheses and analyses, without checkpoints: ``FOLDER-archive.tar.xz``."""

import sys
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.records import archives
from gpam_suite.run.command_line import Parser, guarded

LEFT_OUT = {"checkpoints", "wandb", "tensorboard"}
SUFFIXES = {".json", ".jsonl", ".yaml", ".txt"}


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("results", nargs="?", type=Path, default=Path("results/local"), help="default: %(default)s")
    results = parser.parse_args().results.resolve()
    if not (results / "runs").is_dir():
        raise UsageError(f"got '{results}', wanted a results folder that has runs")
    if packed := [path.name for folder in ("", "*/") for path in results.glob(f"{folder}*{archives.SUFFIX}")]:
        raise UsageError(f"got '{results}', of which a part is packed already ({packed[0]}): copy the folder as it is")
    found = (path for path in results.rglob("*") if path.is_file() and path.suffix in SUFFIXES)
    named = {path.relative_to(results): path for path in found}
    files = {name.as_posix(): path.read_bytes() for name, path in named.items() if not LEFT_OUT & {*name.parts}}
    archive = archives.archive_of(results.with_name(f"{results.name}-archive"))  # its runs are not those of results
    print(write_atomically(archive, archives.pack(files)))


if __name__ == "__main__":
    sys.exit(guarded(main))
