"""A draft of a report in wandb, two models side by side: wandb_report.py ENTITY/PROJECT EXPERIMENT [MODEL MODEL]."""

import sys

from gpam.errors import UsageError
from gpam_suite.report.wandb_report import save
from gpam_suite.run.command_line import guarded


def main() -> None:
    words = sys.argv[1:]
    if len(words) not in (2, 4):
        raise UsageError(f"got {' '.join(words) or 'nothing'}: {__doc__}")
    print(save(words[0], words[1], tuple(words[2:]) or ("softmax", "dagpam")))


if __name__ == "__main__":
    sys.exit(guarded(main))
