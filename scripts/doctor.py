"""Print what is installed, what this machine has, and what would run here."""

import sys

from gpam_suite.run.command_line import guarded
from gpam_suite.tools.doctor import lines

if __name__ == "__main__":
    sys.exit(guarded(lambda: print("\n".join(lines()))))
