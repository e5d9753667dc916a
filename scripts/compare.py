"""Two runs, or two models with all their seeds, side by side."""

import sys

from gpam_suite.common.sections import print_sections
from gpam_suite.report.compare import compare
from gpam_suite.run.command_line import Parser, guarded, user_path


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("a", type=user_path, help="folder of a run, or the folder above it for all its seeds")
    parser.add_argument("b", type=user_path, help="the same, of the other side")
    given = parser.parse_args()
    print_sections(compare(given.a, given.b))


if __name__ == "__main__":
    sys.exit(guarded(main))
