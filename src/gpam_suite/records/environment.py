"""What a run ran on and with: versions, commit, hardware, command."""

import importlib.metadata
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from gpam import processor
from gpam_suite.common.places import ROOT

PACKAGES = (
    "torch",
    "fairseq",
    "hydra-core",
    "omegaconf",
    "sacrebleu",
    "wandb",
    "numpy",
    "sacremoses",
    "subword-nmt",
    "sentencepiece",
)
_OF_A_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # git names another one in these, in its hooks
_PLACES = re.compile(r"(\+\+)?(paths\.|hydra(?!\.searchpath)|launcher=|tracking\.)")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result."""
    import torch

    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *(["triton", "apex"] if torch.version.cuda else [])):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    if torch.version.cuda:
        found |= {"cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version())}
    return found


def commit(git: Mapping[str, Any] | None) -> str:
    """How what :func:`git` found is shown; other code is what was not committed, or what a run began with."""
    if git is None:
        return "not known"
    return f"{git['commit'][:10]}{' and other code' if git['dirty'] else ''}"


def git() -> dict[str, Any] | None:
    """The commit of the source tree, and whether what decides a result differs from it; None outside git."""

    try:
        dirty = _git_says("status", "--porcelain", "--untracked-files=normal", "--", "src", "configs", "scripts")
        return {"commit": _git_says("rev-parse", "HEAD"), "dirty": bool(dirty)}
    except (OSError, subprocess.CalledProcessError):
        return None


def changed(file: str, since: Mapping[str, Any] | None) -> bool:
    """Whether a file of the source tree differs from that of the commit that :func:`git` found then, if it is known."""
    try:
        return since is not None and bool(_git_says("diff", "--name-only", since["commit"], "--", file))
    except (OSError, subprocess.CalledProcessError):
        return False


def _git_says(*words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", ROOT, *words]  # the index's is of a commit under way
    variables = {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY}
    return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL, env=variables).strip()


def hardware() -> dict[str, Any]:
    """Processor, cores, memory in bytes, and the GPUs that torch sees."""
    import torch

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "processor": processor.name(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpu": gpus[0] if gpus else None,
        "gpus": len(gpus),
    }


def command() -> str:
    """The command line, without the interpreter and without settings that only say where on which machine it ran.

    In a job of submitit's, whose command line is submitit's: that of this member alone.
    """
    script, given = Path(sys.argv[0]), sys.argv[1:]
    name = f"scripts/{script.name}" if script.parent.name == "scripts" else script.name
    if "SUBMITIT_EXECUTOR" in os.environ and HydraConfig.initialized():
        name, given = f"scripts/{HydraConfig.get().job.config_name}.py", list(HydraConfig.get().overrides.task)
    words = [word.removeprefix("++") for word in given if not _PLACES.match(word)]
    return shlex.join(["python", name, *words])
