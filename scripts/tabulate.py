"""Tables, figures and the page of a results folder from its records."""

import sys

from gpam.errors import UsageError, did_you_mean
from gpam_suite.report.page import build
from gpam_suite.run.command_line import Parser, guarded, user_path


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("results", nargs="?", type=user_path, default="results/local", help="default: %(default)s")
    given = parser.parse_args()
    if not given.results.is_dir():
        beside = [str(folder) for folder in given.results.parent.glob("*") if (folder / "runs").is_dir()]
        meant = did_you_mean(str(given.results), beside)
        raise UsageError(f"no folder {given.results}{meant or '; a run makes it: make reproduce-lm'}")
    for path in build(given.results):
        print(path)


if __name__ == "__main__":
    sys.exit(guarded(main))
