"""``--finetune-from-model`` from a model without the mechanism's own parameters, such as softmax into daGPAM.

fairseq loads strictly. Here, and only where training starts from another model (a checkpoint of the same training is
still loaded strictly), parameters of a mechanism that the checkpoint lacks keep the values they start with. Everything
else has to be in it. The mechanism is then the checkpoint's model where its options make it softmax: daGPAM at
``lambda+ = lambda- = 0``.
"""

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Any

import torch
from fairseq import checkpoint_utils

log = logging.getLogger(__name__)


@contextlib.contextmanager
def new_parameters_stay(model: torch.nn.Module) -> Iterator[None]:
    """While this holds, ``model.load_state_dict`` takes a state without its mechanisms' parameters."""

    def fill(module: torch.nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        own = {prefix + name: tensor for name, tensor in module.state_dict().items() if ".mechanism." in name}
        new = own.keys() - state.keys()
        state.update({name: own[name] for name in new})
        log.info("%d parameters of the attention are new and start as in a model of its own", len(new))

    hook = model.register_load_state_dict_pre_hook(fill)
    try:
        yield
    finally:
        hook.remove()


def _starting_from_another_model(stock: Any) -> Any:
    @functools.wraps(stock)
    def load_checkpoint(cfg: Any, trainer: Any, **passed_on: Any) -> Any:
        stock_load = trainer.load_checkpoint

        def load(path: str, *args: Any, **kwargs: Any) -> Any:
            another = path == cfg.finetune_from_model
            with new_parameters_stay(trainer.get_model()) if another else contextlib.nullcontext():
                return stock_load(path, *args, **kwargs)

        trainer.load_checkpoint = load
        try:
            return stock(cfg, trainer, **passed_on)
        finally:
            del trainer.load_checkpoint

    return load_checkpoint


checkpoint_utils.load_checkpoint = _starting_from_another_model(checkpoint_utils.load_checkpoint)
