"""Print what is installed, what this machine has, and what would run here."""

import sys

from gpam_suite.run.command_line import Parser, guarded
from gpam_suite.tools.doctor import lines


def main() -> None:
    Parser(description=__doc__).parse_args()
    print("\n".join(lines()))


if __name__ == "__main__":
    sys.exit(guarded(main))
