"""Models to look at: a trained run's, or one that has not been trained, as training itself would build it."""

from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401

import hydra
import torch
from fairseq import tasks, utils
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from torch import nn

from gpam.errors import UsageError
from gpam_suite.config.compose import CONFIGS, fairseq_config
from gpam_suite.data import Prepared, prepare
from gpam_suite.data.prepared import fill_paths
from gpam_suite.evaluate.trained import open_trained
from gpam_suite.inside.store import LOOKED_AT


def composed(*overrides: str) -> DictConfig:
    """``configs/train.yaml`` with ``overrides``, inside or outside of a Hydra application."""
    if GlobalHydra.instance().is_initialized():
        return hydra.compose("train", overrides=list(overrides))
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose("train", overrides=list(overrides))


def _set_up(cfg: DictConfig, paths: Any, folder: Path) -> tuple[DictConfig, Prepared, Any]:
    if cfg.dataset.task not in LOOKED_AT:
        raise UsageError(f"a run of task '{cfg.dataset.task}': wanted one of {', '.join(LOOKED_AT)}")
    prepared = prepare(cfg.dataset, cfg.preprocessing, paths)
    complete = fairseq_config(cfg)
    fill_paths(complete, folder, prepared)
    return complete, prepared, tasks.setup_task(complete.task)


def trained(folder: Path, paths: Any) -> tuple[nn.Module, Any, Prepared]:
    """The trained model of the run in ``folder``, on the CPU and in evaluation, its task and its data.

    Raises:
        UsageError: its configuration, checkpoint or data is not there, or not what it was trained with.
    """
    run = open_trained(folder, paths, cpu=True)
    return run.model(), run.task, run.prepared


def untrained(cfg: DictConfig, paths: Any) -> tuple[nn.Module, Any, Prepared]:
    """The model of ``cfg`` as it is before its first update, in evaluation, its task and its data."""
    complete, prepared, task = _set_up(cfg, paths, Path("unused"))
    utils.set_torch_seed(complete.common.seed)  # as fairseq's train does before it builds the model
    return task.build_model(complete.model).float().eval(), task, prepared


def quiet(threads: int) -> None:
    """One thread or few, as the numbers of a run must not depend on the machine's cores."""
    torch.set_num_threads(threads)
