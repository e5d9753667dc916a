#!/usr/bin/env bash
# Makes a virtual environment with the pinned packages: setup.sh PYTHON VENV [EXTRAS [TORCH_INDEX]]. Said once, quiet
# otherwise; where pip fails, what it said follows. TORCH_INDEX: the package index that torch alone comes from.
set -euo pipefail
python=$1
venv=$2
extras=${3:-test}
torch_index=${4:-}

"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null || {
  version=$("$python" --version 2>&1 || true)
  echo "setup: '$python' is $version, wanted Python 3.11 (3.12 may work); call make PYTHON=python3.11" >&2
  exit 2
}
command -v g++ >/dev/null || {
  echo "setup: no g++ found, wanted for fairseq's extensions; install a C++ compiler and the Python headers" >&2
  exit 2
}
others=$(cat "$venv"/lib/python3*/site-packages/__editable__.gpam_suite-*.pth 2>/dev/null || true)
if [ -d "$others" ] && ! [ "$others" -ef src ]; then
  echo "setup: $venv is the environment of another copy, ${others%/src}; give another VENV" >&2
  exit 2
fi
wanted=$("$python" scripts/lock.py "$extras")
build=$("$python" scripts/lock.py build)

echo "setup: installing the pinned packages into $venv (one to three minutes, once)"
[ -x "$venv/bin/pip" ] || "$python" -m venv "$venv"  # pip comes last: without it the making was stopped
install() {
  "$venv/bin/python" -m pip --disable-pip-version-check install "$@" >"$venv/setup.log" 2>&1 || {
    tail -n 40 "$venv/setup.log" >&2
    echo "setup: pip failed, see above; what is installed so far stays, so after the cause is mended: make setup" >&2
    exit 1
  }
}
# Each file is compared with its hash in requirements.lock. What the list names is all there is (--no-deps): fairseq's
# own pins (hydra-core<1.1, omegaconf<2.1) cannot be met together with ours, and are not needed. Packages without a
# wheel are built with the locked tools, not with whatever is the newest (--no-build-isolation).
install --no-deps --require-hashes --requirement /dev/stdin <<<"$build"
install --no-deps --require-hashes --no-build-isolation --requirement /dev/stdin <<<"$wanted"
# torch by its version: any build of it may be supplied (TORCH_INDEX or pip's own settings), and its CUDA libraries come
# with it, as its dependencies. It is the last, as fairseq would compile extensions against it that are not used here,
# and for minutes.
[ -n "$torch_index" ] || command -v nvidia-smi >/dev/null || [ -e /proc/driver/nvidia ] || [ "$(uname -s)" != Linux ] ||
  echo "setup: no NVIDIA GPU is seen, and torch's usual build brings gigabytes for one; for its CPU build stop this" \
    "and call make setup TORCH_INDEX=ADDRESS, with what PyTorch's page 'Get Started' has after --index-url for CPU"
install_torch() { install --no-warn-conflicts --constraint constraints.txt "$@" torch; }
if [ -n "$torch_index" ]; then install_torch --index-url "$torch_index"; else install_torch; fi
install --no-deps --no-build-isolation --editable .
"$venv/bin/python" -c 'from gpam_fairseq.trainer import products; print("setup:", products.build())'
"$venv/bin/python" -c 'from gpam.attention.backends.compiled import library; print("setup:", library.build())'
# measured as trainings run: with fast products and kept memory
"$venv/bin/python" -c '
import gpam_fairseq  # its products come before torch
from gpam_fairseq.trainer.memory import keep_memory
keep_memory()
from gpam.attention.backends import calibration
print("setup:", calibration.main())'
if nvidia-smi -L >/dev/null 2>&1 && ! "$venv/bin/python" -c 'import torch; (torch.ones(1, device="cuda") + 1).item()' 2>/dev/null; then
  echo "setup: there is a GPU that this build of torch cannot use; it, or its driver, may be older than the build wants" \
    "(nvidia-smi says the driver's version): remove $venv, and call make setup TORCH_INDEX=ADDRESS with what PyTorch's page 'Get" \
    "Started' has after --index-url for that driver"
fi
touch "$venv/.installed"
