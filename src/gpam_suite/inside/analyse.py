"""``make analyse``: look at what there is, and leave the numbers as JSON."""

import logging
import time
from pathlib import Path

import torch
from omegaconf import DictConfig

from gpam.errors import UsageError, did_you_mean
from gpam_suite.common.options import whole_number
from gpam_suite.inside.depth import analyse_depth
from gpam_suite.inside.hulls import analyse_hulls
from gpam_suite.inside.runs import analyse_runs
from gpam_suite.inside.store import path_of

log = logging.getLogger(__name__)
PARTS = ("hulls", "depth", "runs")


def analyse(cfg: DictConfig) -> list[Path]:
    """The parts that ``cfg.parts`` names; those that need no run are made once and again only with ``again=true``.

    Returns:
        The files of numbers that were written.
    """
    for part in cfg.parts:
        if part not in PARTS:
            raise UsageError(f"parts: got '{part}'{did_you_mean(part, PARTS)}, wanted some of {', '.join(PARTS)}")
    for task, texts in cfg.texts.items():
        whole_number(texts, 1, f"texts.{task}")
    results, started, written = Path(cfg.results), time.monotonic(), []
    torch.set_num_threads(cfg.threads)  # one: numbers must not depend on the cores of the machine
    if "hulls" in cfg.parts:
        written.append(analyse_hulls(results))
    if "depth" in cfg.parts and (cfg.again or not path_of(results, "depth").is_file()):
        written.append(analyse_depth(results, cfg, cfg.paths))
    if "runs" in cfg.parts:
        written += analyse_runs(results, cfg.paths, cfg.texts, cfg.only, again=cfg.again)
    log.info("%d files of numbers after %.0f s", len(written), time.monotonic() - started)
    return written
