"""What is installed, what this machine has, and what would run here."""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from gpam.errors import UsageError
from gpam.processor import cores
from gpam_suite.records import environment


def lines() -> list[str]:
    """The report, one fact a line; each problem says what to do."""
    products = _products()  # before anything else loads torch
    from gpam.attention.backends import calibration

    hardware = environment.hardware()
    here = {
        "processor": f"{hardware['processor']}, {hardware['cores']} cores",
        "memory": f"{hardware['memory_bytes'] / 2**30:.0f} GiB",
        "GPU": f"{hardware['gpu']} x {hardware['gpus']}{_cannot_compute()}" if hardware["gpus"] else _no_gpu(),
        "C++ compiler": shutil.which("g++") or "none: setup cannot build fairseq; install g++",
        "matrix products": products,
        "attention": calibration.current(),
        "SLURM": shutil.which("sbatch") or "none",
        "data mirror": _mirror(),
        "wandb": _wandb(),
    }
    scale = "paper (say SCALE=small or laptop for less)" if hardware["gpus"] else "laptop (no GPU visible)"
    side_by_side = 1 if hardware["gpus"] else cores()
    return [
        "installed",
        *(f"  {name:15} {version}" for name, version in environment.versions().items()),
        "this machine",
        *(f"  {name:15} {fact}" for name, fact in here.items()),
        "would run",
        f"  {_fairseq()}",
        f"  make reproduce-lm and reproduce-nmt: SCALE={scale}, {side_by_side} run(s) at a time",
    ]


def _cannot_compute() -> str:
    """What fails on the first of the GPUs that torch sees, as one that is full or that torch has no code for."""
    import torch

    try:
        torch.ones(1, device="cuda").sum().item()
    except (AssertionError, RuntimeError) as error:  # the first where torch is built for CPUs
        return f", but nothing can be computed there: {str(error).splitlines()[0]}"
    return ""


def _no_gpu() -> str:
    asked = ["nvidia-smi", "-L"]
    if shutil.which(asked[0]) is None or subprocess.run(asked, capture_output=True, check=False).returncode:
        return "none visible"
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return f"none visible, as CUDA_VISIBLE_DEVICES is '{os.environ['CUDA_VISIBLE_DEVICES']}'"
    import torch

    build = f"is for CUDA {torch.version.cuda}" if torch.version.cuda else "is for CPUs"
    return f"there is one, but this torch does not see it: it {build} (docs/install.md: TORCH_INDEX)"


def _products() -> str:
    try:
        from gpam_fairseq.trainer import products
    except (ImportError, UsageError):
        return "not known, as fairseq does not work here"
    return products.state().why


def _mirror() -> str:
    mirror = os.environ.get("GPAM_MIRROR")
    if not mirror:
        return "not set: public data sets are downloaded (GPAM_MIRROR names a folder with local copies)"
    return mirror if Path(mirror).expanduser().is_dir() else f"{mirror} does not exist; correct GPAM_MIRROR"


def _wandb() -> str:
    if importlib.util.find_spec("wandb") is None:
        return "not installed: runs are not tracked"
    from gpam_suite.run.tracking import logged_in

    return "logged in: runs are tracked online" if logged_in() else "not logged in: runs are tracked offline"


def _fairseq() -> str:
    try:
        import gpam_fairseq  # noqa: F401

        from fairseq.data import data_utils_fast, token_block_utils_fast  # noqa: F401
    except (ImportError, UsageError) as error:
        return f"fairseq does not work here: {error}; run 'make setup' again"
    from gpam.attention import names

    return f"fairseq works, with {len(names())} attention mechanisms: {', '.join(names())}"
