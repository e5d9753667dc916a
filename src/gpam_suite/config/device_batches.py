"""How devices share an update: a recipe's batch is that of one device, and any number of devices sees as many tokens.

An update holds at most ``max_tokens x update_freq`` tokens. ``n`` devices take fewer batches each (``update_freq / n``)
where that goes, and smaller ones (``max_tokens``, ``batch_size``) for what is left. fairseq takes a multiple of
``required_batch_size_multiple`` sentences where a batch has as many, so that is cut with the tokens: else each device
would round its own small batch down.
"""

from collections.abc import Mapping
from math import gcd
from typing import Any

from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError
from gpam_suite.common.options import one_of, whole_number

HALF = ("fp16", "bf16")
PRECISIONS = ("fp32", *HALF)


def devices(cfg: DictConfig) -> int:
    """``gpu.devices``; 1 in the configuration of a run from before there was a choice."""
    return OmegaConf.select(cfg, "gpu.devices", default=1)


def precision(cfg: DictConfig) -> str:
    """``gpu.precision``: one of :data:`PRECISIONS`."""
    return OmegaConf.select(cfg, "gpu.precision", default="fp32")


def check_devices(cfg: DictConfig, complete: DictConfig) -> None:
    """Raise UsageError where ``gpu`` asks for what cannot be; ``complete`` is fairseq's part."""
    count, of = devices(cfg), precision(cfg)
    whole_number(count, 1, "gpu.devices")
    one_of(of, PRECISIONS, "gpu.precision")
    if of in HALF and complete.common.cpu:
        raise UsageError(f"gpu.precision={of} needs a GPU: fairseq's half precision does not run on a processor")
    shared(complete, count)


def check_visible(cfg: DictConfig, wanted: int) -> None:
    """Raise UsageError where a run on GPUs sees fewer than ``wanted``: fairseq would take the processor without a
    word."""
    import torch

    if cfg.fairseq.common.cpu:
        return
    if not torch.cuda.is_available():
        raise UsageError(f"gpu={cfg.gpu.name} needs a GPU, and torch sees none on this machine; set gpu=cpu")
    if torch.cuda.device_count() < wanted:
        raise UsageError(
            f"gpu.devices={wanted}, but this machine has {torch.cuda.device_count()} GPU(s); set gpu.devices, or "
            "start one process a GPU on several machines with torchrun or srun"
        )


def shared(complete: DictConfig, count: int) -> dict[str, dict[str, object]]:
    """The options of fairseq's that ``count`` devices change, by group: ``optimization`` and ``dataset``.

    Raises:
        UsageError: the batch cannot be cut so that an update keeps its tokens.
    """
    frequencies = list(complete.optimization.update_freq)
    whole = {name: complete.dataset[name] for name in ("max_tokens", "batch_size", "required_batch_size_multiple")}
    most, sentences, multiple = whole.values()
    common = gcd(count, *map(int, frequencies))
    rest = count // common
    found: dict[str, dict[str, object]] = {"optimization": {"update_freq": [int(f) // common for f in frequencies]}}
    if rest == 1:
        return found
    if most is None or most % rest or (sentences or 0) % rest:
        also = "" if sentences is None else f" and batch_size={sentences} sentences"
        raise UsageError(
            f"gpu.devices={count} cannot share an update of update_freq={frequencies} batches with at most "
            f"max_tokens={most} tokens{also} evenly; set fairseq.optimization.update_freq to a multiple of {count}"
        )
    length = complete.task.get("tokens_per_sample")
    own = {"max_tokens": most // rest, "required_batch_size_multiple": max(1, multiple // rest)}
    own["batch_size"] = None if sentences is None else sentences // rest
    if length is not None and most // rest < length:
        raise UsageError(
            f"gpu.devices={count} leaves each device {most // rest} tokens of fairseq.dataset.max_tokens={most}, less "
            f"than one sample of {length}; use fewer devices, or raise max_tokens or update_freq"
        )
    if length is not None and rest * samples(own, length) != samples(whole, length):
        raise UsageError(
            f"gpu.devices={count} cannot share the {samples(whole, length)} samples of {length} tokens that "
            f"fairseq.dataset.max_tokens={most} has room for evenly; set fairseq.optimization.update_freq to a "
            f"multiple of {count}"
        )
    return found | {"dataset": own}


def share(complete: DictConfig, count: int) -> None:
    """Give ``complete`` the options that :func:`shared` finds for ``count`` devices."""
    for group, options in shared(complete, count).items():
        complete[group].update(options)


def samples(dataset: Mapping[str, Any], length: int) -> int:
    """How many of ``length`` tokens are in a batch of fairseq's: a multiple of ``required_batch_size_multiple``, where
    there are as many."""
    held, multiple = dataset["max_tokens"] // length, dataset["required_batch_size_multiple"]
    held = min(held, dataset["batch_size"] or held)
    return held - held % multiple if held >= multiple else held
