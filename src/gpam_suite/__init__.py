"""The experiments: from a configuration to records, tables and figures."""

import sys
from pathlib import Path

from gpam.commands import end_by_ctrl_c_while_importing

_SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
_started = Path(sys.argv[0]).resolve().parent
if _started.name == "scripts" and _started != _SCRIPTS and (_started.parent / "src" / "gpam_suite").is_dir():
    print(
        f"{Path(sys.argv[0]).name}: this Python has the code of {_SCRIPTS.parent}, and the script is of "
        f"{_started.parent}; start it with that tree's own environment (make setup there)",
        file=sys.stderr,
    )
    sys.exit(2)
# Python puts a script's folder first on the path, where scripts/tabulate.py would hide the package of that name
sys.path[:] = [entry for entry in sys.path if entry != str(_SCRIPTS)]
end_by_ctrl_c_while_importing(__name__, _SCRIPTS)
