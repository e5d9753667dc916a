"""The promises of docs/reliability.md at full count, then the page: soak.py [PART,...]; soak.py page: only the page."""

import logging
import sys

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.records.environment import ROOT
from gpam_suite.run.command_line import guarded

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "gpam_suite")]  # the parts live beside their samples


def main() -> None:
    from soak.page import PAGE, page
    from soak.parts import named
    from soak.record import soak

    logging.disable(logging.INFO)  # some parts train in this process
    words = sys.argv[1:]
    if len(words) > 1:
        raise UsageError(f"got {' '.join(words)}, wanted at most one list of parts: {__doc__}")
    for part in [] if words == ["page"] else named("".join(words)):
        print(f"{part.name}: {part.promise}", flush=True)
        print(soak(part), flush=True)
    print(write_atomically(PAGE, page()))


if __name__ == "__main__":
    sys.exit(guarded(main))
