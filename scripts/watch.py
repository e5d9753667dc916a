"""Where the runs of an experiment stand: status, update, losses, time left."""

import sys

from gpam_suite.common.sections import print_sections
from gpam_suite.run.command_line import Parser, guarded, user_path
from gpam_suite.run.progress import members


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("results", type=user_path)
    parser.add_argument("experiment")
    given = parser.parse_args()
    print_sections([members(given.results, given.experiment)])


if __name__ == "__main__":
    sys.exit(guarded(main))
