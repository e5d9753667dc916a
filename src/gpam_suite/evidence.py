"""``make evidence``: the runs of docs/experiment-plan.md, each looked at as soon as it is there, then the tables.

Every part is a list of Hydra multiruns; finished members are skipped, so a plan that was interrupted goes on. The
analyses follow a part at once, since they need checkpoints and those are not kept in git.
"""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError, did_you_mean
from gpam_suite.command_line import USAGE_ERROR, RunFailed
from gpam_suite.environment import ROOT
from gpam_suite.formatting import duration
from gpam_suite.stopping import die_with

log = logging.getLogger(__name__)


def evidence(cfg: DictConfig) -> None:
    """Do what is missing of the parts that ``cfg.parts`` names (all when it is null).

    Raises:
        UsageError: no such part, or ``jobs`` is no number, or a multirun's command line is wrong.
        RunFailed: some member ended without a result; the others were done.
    """
    if isinstance(cfg.jobs, bool) or not isinstance(cfg.jobs, int) or cfg.jobs < 1:
        raise UsageError(f"jobs: got '{cfg.jobs}', wanted a whole number of at least 1")
    plan = unresolved(cfg)
    chosen = list(plan) if cfg.parts is None else list(cfg.parts)
    for name in chosen:
        if name not in plan:
            raise UsageError(f"parts: got '{name}'{did_you_mean(name, plan)}, wanted some of {', '.join(plan)}")
    started, codes = time.monotonic(), []
    for number, name in enumerate(chosen, start=1):
        log.info("part %d of %d: %s, after %s", number, len(chosen), name, duration(time.monotonic() - started))
        codes.append(_part(plan[name], cfg.jobs, OmegaConf.to_container(cfg.paths, resolve=True)))
    if max(codes, default=0):
        raise RunFailed("some runs ended without a result; the tables and their records say which and why")


def unresolved(cfg: DictConfig) -> dict[str, dict]:
    """The plan with its lists of models filled in; interpolations of a run's own configuration are left to the run."""
    plan = OmegaConf.to_container(cfg.plan, resolve=False)
    for part in plan.values():
        part["multiruns"] = [_with_models(line, cfg) for line in part["multiruns"]]
    return plan


def _with_models(line: str, cfg: DictConfig) -> str:
    for name in ("main", "controls", "alternatives", "ablations", "row_sum"):
        line = line.replace(f"${{{name}}}", cfg[name])
    return line


def _part(part: dict, jobs: int, paths: dict) -> int:
    folder = Path(paths["results"]) / part.get("folder", "")
    given = [f"paths.{name}={value}" for name, value in paths.items() if name != "results" and value is not None]
    side_by_side = ["launcher=joblib", f"hydra.launcher.n_jobs={jobs}"]
    codes = [
        _call("train.py", "-m", *line.split(), f"paths.results={folder}", *given, *(side_by_side if jobs > 1 else []))
        for line in part["multiruns"]
    ]
    if USAGE_ERROR in codes:
        raise UsageError("a multirun of the plan was refused; the lines above say why")
    if "folder" not in part:
        codes.append(_call("analyse.py", f"results={folder}", "parts=[runs]", *given))
    return max(codes)


def _call(script: str, *words: str) -> int:
    command = [sys.executable, str(ROOT / "scripts" / script), *words]
    asked = die_with(os.getpid(), signal.SIGTERM)  # what was trained is saved then
    return subprocess.run(command, cwd=ROOT, check=False, preexec_fn=asked).returncode
