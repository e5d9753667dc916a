"""Publish runs: publish.py [FOLDER ...] puts the runs of results folders into results/ and makes its tables again."""

import sys
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.common.files import write_files
from gpam_suite.report.publish import publish, remake
from gpam_suite.run.command_line import guarded


def main() -> None:
    folders = sys.argv[1:]
    for name in folders:
        if not Path(name).is_dir():
            raise UsageError(f"got '{name}', which is no folder, wanted results folders such as results/local.")
    for name in folders:
        for path in publish(Path(name)):
            print(path)
    for path in write_files(remake()):
        print(path)


if __name__ == "__main__":
    sys.exit(guarded(main))
