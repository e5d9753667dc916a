"""Write docs/mechanisms.md from the registry and the benchmark."""

import sys

from gpam_suite.common.files import write_atomically
from gpam_suite.run.command_line import Parser, guarded
from gpam_suite.tools.catalogue import PAGE, catalogue


def main() -> None:
    Parser(description=__doc__).parse_args()
    print(write_atomically(PAGE, catalogue()))


if __name__ == "__main__":
    sys.exit(guarded(main))
