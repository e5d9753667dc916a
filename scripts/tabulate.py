"""Tables, figures and the page of a results folder from its records: tabulate.py [RESULTS] [EXPERIMENT]."""

import sys
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.report.page import build
from gpam_suite.run.command_line import guarded


def main() -> None:
    words = sys.argv[1:]
    if len(words) > 2 or any(word.startswith("-") for word in words):
        raise UsageError(f"got {' '.join(words)}, wanted at most a results folder and an experiment: {__doc__}")
    results = Path(words[0]) if words else Path("results/local")
    for path in build(results, words[1] if len(words) > 1 else None):
        print(path)


if __name__ == "__main__":
    sys.exit(guarded(main))
