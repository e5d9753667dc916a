"""Models that have not been trained, as training itself would build them."""

from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401

from fairseq import tasks, utils
from omegaconf import DictConfig
from torch import nn

from gpam_suite.config.compose import fairseq_config
from gpam_suite.data import Prepared, prepare
from gpam_suite.data.prepared import fill_paths


def untrained(cfg: DictConfig, paths: Any) -> tuple[nn.Module, Any, Prepared]:
    """The model of ``cfg`` as it is before its first update, in evaluation, its task and its data."""
    prepared = prepare(cfg.dataset, cfg.preprocessing, paths)
    complete = fairseq_config(cfg)
    fill_paths(complete, Path("unused"), prepared)
    task = tasks.setup_task(complete.task)
    utils.set_torch_seed(complete.common.seed)  # as fairseq's train does before it builds the model
    return task.build_model(complete.model).float().eval(), task, prepared
