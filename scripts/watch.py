"""The members of an experiment that runs elsewhere (a queue, another terminal)."""

import sys
import time
from pathlib import Path

from gpam.errors import UsageError
from gpam_suite.common.arguments import Parser
from gpam_suite.common.files import safe_name
from gpam_suite.run.command_line import guarded
from gpam_suite.run.members import QUEUED, RUNNING, Member, read_member
from gpam_suite.run.watch import EVERY, watch


def main() -> None:
    from rich.console import Console

    parser = Parser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("experiment")
    given = parser.parse_args()
    root = given.results / "runs" / safe_name(given.experiment)

    def look() -> list[Member]:
        """All but those that were killed before they trained."""
        found = [read_member(folder) for folder in sorted(root.glob("*/seed*"))]
        return [member for member in found if member.status != QUEUED]

    if not look():
        known = sorted(folder.name for folder in root.parent.glob("*"))
        raise UsageError(f"no run at {root} has begun; wanted one of {', '.join(known) or 'a folder with runs'}")

    def done(members: list[Member]) -> bool:
        running = any(member.status == RUNNING for member in members)
        if running:
            time.sleep(EVERY)
        return not running

    watch(look, Console(highlight=False), done)


if __name__ == "__main__":
    sys.exit(guarded(main))
