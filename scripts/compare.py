"""Two runs, or two models with all their seeds, side by side: compare.py A B [--anyway]."""

import sys

from gpam.errors import UsageError
from gpam_suite.common.sections import print_sections
from gpam_suite.report.compare import compare
from gpam_suite.run.command_line import guarded


def main() -> None:
    words = [word for word in sys.argv[1:] if word != "--anyway"]
    if len(words) != 2 or any(word.startswith("-") for word in words):
        raise UsageError(f"got {' '.join(words) or 'nothing'}, wanted two folders of runs: {__doc__}")
    print_sections(compare(*words, anyway="--anyway" in sys.argv))


if __name__ == "__main__":
    sys.exit(guarded(main))
