"""Models that have not been trained, as training itself would build them."""

from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401

import hydra
from fairseq import tasks, utils
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from torch import nn

from gpam_suite.config.compose import CONFIGS, fairseq_config
from gpam_suite.data import Prepared, prepare
from gpam_suite.data.prepared import fill_paths


def composed(*overrides: str) -> DictConfig:
    """``configs/train.yaml`` with ``overrides``, inside or outside of a Hydra application."""
    if GlobalHydra.instance().is_initialized():
        return hydra.compose("train", overrides=list(overrides))
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose("train", overrides=list(overrides))


def untrained(cfg: DictConfig, paths: Any) -> tuple[nn.Module, Any, Prepared]:
    """The model of ``cfg`` as it is before its first update, in evaluation, its task and its data."""
    prepared = prepare(cfg.dataset, cfg.preprocessing, paths)
    complete = fairseq_config(cfg)
    fill_paths(complete, Path("unused"), prepared)
    task = tasks.setup_task(complete.task)
    utils.set_torch_seed(complete.common.seed)  # as fairseq's train does before it builds the model
    return task.build_model(complete.model).float().eval(), task, prepared
