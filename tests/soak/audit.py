"""The pins against PyPA's advisory database."""

import os
import re
import subprocess
import sys

from gpam.errors import UsageError
from gpam_suite.common.places import ROOT
from soak.parts import Figures

SAYS = re.compile(
    r"^audit: (?P<pins>\d+) pins, (?P<advisories>\d+) advisories up to (?P<last>[\d-]{10}), 0 that apply$", re.M
)


def advisories() -> Figures:
    """``scripts/audit.py`` on the checkout of the database that the variable ``ADVISORIES`` names.

    Raises:
        UsageError: no such folder is named.
        AssertionError: a pin has a known weakness, or an installed file is not what was locked.
    """
    folder = os.environ.get("ADVISORIES")
    if not folder:
        raise UsageError("this part needs ADVISORIES=FOLDER, a checkout of PyPA's advisory database")
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), folder]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    said = SAYS.search(ended.stdout)
    assert ended.returncode == 0 and said, ended.stderr
    return {"pins": int(said["pins"]), "advisories": int(said["advisories"]), "last": said["last"]}
