"""One archive of your runs, histories, hypotheses and analyses, without checkpoints: archive.py [RESULTS]."""

import sys
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.records import archives
from gpam_suite.run.command_line import guarded

LEFT_OUT = {"checkpoints", "wandb", "tensorboard"}
SUFFIXES = {".json", ".jsonl", ".yaml", ".txt"}


def main() -> None:
    words = sys.argv[1:]
    results = Path(words[0] if words else "results/local").resolve()
    if len(words) > 1 or not (results / "runs").is_dir():
        raise UsageError(f"got '{' '.join(words) or results}', wanted a results folder that has runs: {__doc__}")
    found = (path for path in results.rglob("*") if path.is_file() and path.suffix in SUFFIXES)
    named = {path.relative_to(results): path for path in found}
    files = {name.as_posix(): path.read_bytes() for name, path in named.items() if not LEFT_OUT & {*name.parts}}
    print(write_atomically(archives.archive_of(results), archives.pack(files)))


if __name__ == "__main__":
    sys.exit(guarded(main))
