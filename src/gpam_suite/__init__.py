"""The experiments: from a configuration to records, tables and figures."""

import sys
from pathlib import Path

from gpam.errors import end_by_ctrl_c_while_importing

_SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# Python puts a script's folder first on the path, where scripts/tabulate.py would hide the package of that name
sys.path[:] = [entry for entry in sys.path if entry != str(_SCRIPTS)]
end_by_ctrl_c_while_importing(_SCRIPTS)
