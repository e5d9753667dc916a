"""fairseq's configuration for one process of several: its rank, its share of the batch, and what it talks with."""

import os

import torch
from omegaconf import DictConfig

from gpam_suite.config.device_batches import devices, shared
from gpam_suite.run.ranks import place_of


def distribute(own: DictConfig, cfg: DictConfig) -> None:
    """Fill this process's place into fairseq's complete configuration ``own``; nothing where it is alone.

    Processes talk by gloo on processors and by NCCL on GPUs. Gradients are summed by fairseq's ``legacy_ddp``, which
    takes CPU modules, parameters without a gradient, and every criterion.
    """
    count, place = devices(cfg), place_of()
    if place is None:
        return
    os.environ.update(place.variables())
    for group, options in shared(own, count).items():
        own[group].update(options)
    cpu = own.common.cpu
    own.distributed_training.update(
        distributed_world_size=place.world,
        distributed_rank=place.rank,
        distributed_init_method="env://",
        distributed_backend="gloo" if cpu else "nccl",
        distributed_no_spawn=True,  # this is one of the processes
        device_id=0 if cpu else place.local % max(torch.cuda.device_count(), 1),  # SLURM may show each its own GPU only
        ddp_backend="legacy_ddp",
    )
    own.checkpoint.load_checkpoint_on_all_dp_ranks = True  # fairseq's broadcast needs to unpickle a class of its own


def leave() -> None:
    """End the group of processes, where there is one."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
