"""Options of fairseq's that this suite fills in itself, from one of its own: set in fairseq's tree they would change
nothing but a run's hash, or the name of its row."""

from omegaconf import DictConfig, OmegaConf

from gpam.attention.registry import all_options
from gpam.errors import UsageError

_INSTEAD = {
    **{f"common.{name}": "gpu.precision=fp16" for name in ("fp16", "amp", "memory_efficient_fp16")},
    **{f"common.{name}": "gpu.precision=bf16" for name in ("bf16", "memory_efficient_bf16")},
    "common.seed": "seed=NUMBER",
    "common.wandb_project": "tracking.project=NAME",
    "checkpoint.save_dir": "paths.results=FOLDER",
    "distributed_training.distributed_world_size": "gpu.devices=NUMBER",
    "task.data": "dataset=NAME",
    "task.source_lang": "dataset=NAME",
    "task.target_lang": "dataset=NAME",
    "model.attention": "model=NAME",
}
"""Where fairseq has them, and what to give instead."""


def refuse_names_of_fairseq(cfg: DictConfig) -> None:
    """Refuse options of fairseq's that the suite, or its ``model`` node, sets.

    Raises:
        UsageError: one of them is given.
    """
    for name, instead in {**_INSTEAD, **{f"model.{name}": f"model.{name}=VALUE" for name in all_options()}}.items():
        value = OmegaConf.select(cfg.fairseq, name)
        if value is not None and value is not False:
            raise UsageError(f"fairseq.{name}: got {value}, wanted {instead}")
