#!/usr/bin/env bash
# Makes a virtual environment with the pinned packages: setup.sh PYTHON VENV [EXTRAS]. Said once, quiet otherwise.
set -euo pipefail
python=$1
venv=$2
extras=${3:-test}

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null || {
  version=$("$python" --version 2>&1 || true)
  echo "setup: '$python' is $version, wanted Python 3.11 (3.12 may work); call make PYTHON=python3.11" >&2
  exit 2
}
command -v g++ >/dev/null || {
  echo "setup: no g++ found, wanted for fairseq's extensions; install a C++ compiler and the Python headers" >&2
  exit 2
}
wanted=$("$python" scripts/lock.py "$extras")
build=$("$python" scripts/lock.py build)

echo "setup: installing the pinned packages into $venv (one to three minutes, once)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
install() {
  "$venv/bin/python" -m pip --disable-pip-version-check --quiet install "$@"
}
# Each file is compared with its hash in requirements.lock. What the list names is all there is (--no-deps): fairseq's
# own pins (hydra-core<1.1, omegaconf<2.1) cannot be met together with ours, and are not needed. Packages without a
# wheel are built with the locked tools, not with whatever is the newest (--no-build-isolation).
install --no-deps --require-hashes --requirement /dev/stdin <<<"$build"
install --no-deps --require-hashes --no-build-isolation --requirement /dev/stdin <<<"$wanted"
# torch by its version: any build of it may be supplied (pip's own settings), and its CUDA libraries come with it. It is
# the last, as fairseq would compile extensions against it that are not used here, and for minutes.
install --no-warn-conflicts --constraint constraints.txt torch
install --no-deps --no-build-isolation --editable .
touch "$venv/.installed"
