"""Tables, figures and the report of a results folder from its records: tabulate.py [RESULTS] [EXPERIMENT]."""

import sys
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.analysis.findings import update_findings
from gpam_suite.command_line import guarded
from gpam_suite.front_page import PUBLISHED, update_front_page
from gpam_suite.report import build


def main() -> None:
    words = sys.argv[1:]
    if len(words) > 2 or any(word.startswith("-") for word in words):
        raise UsageError(f"got {' '.join(words)}, wanted at most a results folder and an experiment: {__doc__}")
    results = Path(words[0]) if words else Path("results/local")
    for path in build(results, words[1] if len(words) > 1 else None):
        print(path)
    if results.resolve() == PUBLISHED:
        print(update_front_page())
        print(update_findings())


if __name__ == "__main__":
    sys.exit(guarded(main))
