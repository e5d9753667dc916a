"""The promises of docs/reliability.md at full count, then the page."""

import logging
import sys

from gpam_suite.common.files import write_atomically
from gpam_suite.common.places import ROOT
from gpam_suite.run.command_line import Parser, guarded

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "gpam_suite")]  # the parts live beside their samples


def main() -> None:
    from soak.page import PAGE, page, soak
    from soak.parts import named

    logging.disable(logging.INFO)  # some parts train in this process
    parser = Parser(description=__doc__)
    parser.add_argument("parts", nargs="?", default="", help="names separated by commas, or page: only the page")
    parts = parser.parse_args().parts
    for part in [] if parts == "page" else named(parts):
        print(f"{part.name} ...", flush=True)
        print(soak(part), flush=True)
    print(write_atomically(PAGE, page()))


if __name__ == "__main__":
    sys.exit(guarded(main))
