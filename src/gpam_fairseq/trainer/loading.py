"""What training starts from: a checkpoint of its own, or with ``--finetune-from-model`` another model's.

A checkpoint of its own has to hold the very model. fairseq loads parameters strictly, but fixed lambdas and the like
are options and no parameters; those are compared here.

Another model may lack the mechanism's own parameters, as softmax does where daGPAM starts from it: those keep the
values they start with. Everything else has to be in it. The mechanism is then the checkpoint's model where its options
make it softmax: daGPAM at ``lambda+ = lambda- = 0``.
"""

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Iterator
from typing import Any

from gpam_fairseq.arguments import another_model
from gpam_fairseq.config import attention_and_options
from gpam_fairseq.trainer.replacing import replaced

import torch
from fairseq import checkpoint_utils

from gpam.attention.registry import options_of
from gpam.errors import UsageError

log = logging.getLogger(__name__)


@contextlib.contextmanager
def new_parameters_stay(model: torch.nn.Module) -> Iterator[None]:
    """While this holds, ``model.load_state_dict`` takes a state without its mechanisms' parameters."""

    def fill(module: torch.nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        own = {prefix + name: tensor for name, tensor in module.state_dict().items() if ".mechanism." in name}
        new = own.keys() - state.keys()
        state.update({name: own[name] for name in new})
        log.info("%d parameters of the attention are new and start as in a model of its own", len(new))

    with model.register_load_state_dict_pre_hook(fill):
        yield


@contextlib.contextmanager
def same_mechanism(wanted: Any) -> Iterator[None]:
    """While this holds, a checkpoint whose mechanism, or an option of it, is not that of ``wanted``, a configuration of
    this plugin's models, is refused with a UsageError as it is read."""
    stock = checkpoint_utils.load_checkpoint_to_cpu

    def load_checkpoint_to_cpu(path: str, *args: Any, **kwargs: Any) -> Any:
        state = stock(path, *args, **kwargs)
        there, here = _mechanism(getattr(state.get("cfg"), "model", None)), _mechanism(wanted)
        for name, value in here.items():
            if there.get(name) != value:
                raise UsageError(another_model(path, f"{name} is {there.get(name)} in it, {value} here"))
        return state

    with replaced(checkpoint_utils, load_checkpoint_to_cpu=load_checkpoint_to_cpu):
        yield


def _mechanism(model: Any) -> dict[str, Any]:
    """Its name and every option, of a model's configuration; stock fairseq's have neither."""
    if model is None or "attention_backend" not in model:
        return {"attention": "softmax"}
    name, given = attention_and_options(model)
    return {"attention": name, **dataclasses.asdict(options_of(name, given))}


def _loading(stock: Any) -> Any:
    @functools.wraps(stock)
    def load_checkpoint(cfg: Any, trainer: Any, **passed_on: Any) -> Any:
        stock_load = trainer.load_checkpoint

        def load(path: str, *args: Any, **kwargs: Any) -> Any:
            another = path == cfg.finetune_from_model
            with new_parameters_stay(trainer.get_model()) if another else same_mechanism(trainer.cfg.model):
                return stock_load(path, *args, **kwargs)

        trainer.load_checkpoint = load
        try:
            return stock(cfg, trainer, **passed_on)
        finally:
            del trainer.load_checkpoint

    return load_checkpoint


checkpoint_utils.load_checkpoint = _loading(checkpoint_utils.load_checkpoint)
