"""A draft of a report in wandb, two models side by side."""

import sys

from gpam_suite.report.wandb_report import save
from gpam_suite.run.command_line import Parser, guarded


def main() -> None:
    parser = Parser(description=__doc__)
    parser.add_argument("project", help="<entity>/<project>")
    parser.add_argument("experiment")
    parser.add_argument("--models", nargs=2, default=("softmax", "dagpam"), help="default: %(default)s")
    given = parser.parse_args()
    print(save(given.project, given.experiment, tuple(given.models)))


if __name__ == "__main__":
    sys.exit(guarded(main))
