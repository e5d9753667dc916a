"""What attention learns while it trains, in the run's history: gradient norms of its maps, and its learned scalars.

Two more rows of the history at every update that fairseq logs (``common.log_interval``) and at the first, as
:func:`measure` gives them.

Gradients are read between the backward pass and clipping, and nothing is changed: training stays the same bit by bit.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gpam_fairseq.attention import GPAMMultiheadAttention
from gpam_fairseq.trainer.replacing import replaced

from torch import Tensor, nn

from gpam.analysis.gradients import gradient_norms

_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}


@contextlib.contextmanager
def histories(write: Callable[[dict[str, Any]], Any], every: int) -> Iterator[None]:
    """While this holds, fairseq's trainer gives both rows to ``write`` every ``every`` updates."""
    from fairseq.trainer import Trainer

    stock = Trainer.clip_grad_norm

    def clip_grad_norm(trainer: Any, clip_norm: float) -> Tensor:
        update = trainer.get_num_updates() + 1
        if trainer.is_data_parallel_master and (update == 1 or update % every == 0):
            factor = getattr(trainer.optimizer, "_multiply_factor", 1.0)  # what half precision has yet to apply
            for split, values in measure(trainer.get_model(), float(factor)).items():
                write({"update": update, "split": split, **values})
        return stock(trainer, clip_norm)

    with replaced(Trainer, clip_grad_norm=clip_grad_norm):
        yield


def measure(model: nn.Module, factor: float = 1.0) -> dict[str, dict[str, float]]:
    """The rows of one update by split, an empty one left out; gradients are multiplied by ``factor``.

    ``gradient``: ``<map>/<module>`` to ``||dL/dW||_F``; ``scalar``: ``<name>/<module>`` to a mechanism's parameter.
    """
    norms = {name: factor * norm for name, norm in gradient_norms(_maps(model)).items()}
    found = {"gradient": norms, "scalar": _scalars(model)}
    return {split: values for split, values in found.items() if values}


def _attention(model: nn.Module) -> Iterator[tuple[str, GPAMMultiheadAttention]]:
    for path, module in model.named_modules():
        if isinstance(module, GPAMMultiheadAttention):
            yield path, module


def _maps(model: nn.Module) -> dict[str, Tensor]:
    found = {}
    for path, module in _attention(model):
        found |= {f"{name}/{path}": getattr(module, part).weight for name, part in _PROJECTIONS.items()}
        own = module.mechanism.named_parameters()
        found |= {f"{name.removesuffix('.weight')}/{path}": matrix for name, matrix in own if matrix.dim() > 1}
    return found


def _scalars(model: nn.Module) -> dict[str, float]:
    found = {}
    for path, module in _attention(model):
        for name, parameter in module.mechanism.named_parameters(recurse=False):
            one = parameter.dim() == 0
            by_head = parameter.shape == (module.num_heads,) and name not in module.mechanism.of_components
            if not one and not by_head:
                continue
            values = parameter.detach().flatten().tolist()
            found |= {f"{name}/{path}" + ("" if one else f"/{head}"): value for head, value in enumerate(values)}
    return found
