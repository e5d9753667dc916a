#!/usr/bin/env bash
# Makes a virtual environment with the pinned packages: setup.sh PYTHON VENV [EXTRAS]. Said once, quiet otherwise.
set -euo pipefail
python=$1 venv=$2 extras=${3:-test}

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null || {
  echo "setup: '$python' is $("$python" --version 2>&1 || true), wanted Python 3.11 (3.12 may work); call make PYTHON=python3.11" >&2
  exit 2
}
command -v g++ >/dev/null || {
  echo "setup: no g++ found, wanted for fairseq's extensions; install a C++ compiler and the Python headers" >&2
  exit 2
}

echo "setup: installing the pinned packages into $venv (one to three minutes, once)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip="$venv/bin/python -m pip --disable-pip-version-check --quiet"
$pip install --constraint constraints.txt --editable ".[$extras]"
# fairseq's own pins (hydra-core<1.1, omegaconf<2.1) cannot be met together with ours, and are not needed
$pip install --no-deps --constraint constraints.txt fairseq
touch "$venv/.installed"
