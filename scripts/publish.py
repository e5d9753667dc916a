"""Put the runs of results folders into results/, and make its tables again."""

import sys

from gpam_suite.common.files import write_files
from gpam_suite.common.lock import locked
from gpam_suite.common.places import PUBLISHED
from gpam_suite.report.page import refuse_other_folder
from gpam_suite.report.publish import publish, remake, stale
from gpam_suite.run.command_line import Parser, guarded, user_path


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=user_path, help="such as results/local; none: only the tables")
    folders = parser.parse_args().folders
    for folder in folders:  # all of them before the first is published
        refuse_other_folder(folder)
    with locked(PUBLISHED, wait=False):
        for folder in folders:
            for path in publish(folder):
                print(path)
        files = remake()
        for path in write_files(files):
            print(path)
        for path in stale(files):
            path.unlink()
            print(f"removed {path}")


if __name__ == "__main__":
    sys.exit(guarded(main))
