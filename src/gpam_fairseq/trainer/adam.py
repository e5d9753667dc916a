"""fairseq's Adam in one pass over the parameters, where fairseq makes a dozen."""

import math
from collections.abc import Callable
from typing import Any

import torch
from fairseq.optim.adam import Adam
from torch.optim.adamw import adamw

_stock_step = Adam.step


def fused_step(optimizer: Adam, closure: Callable[[], Any] | None = None) -> Any:
    """The update of fairseq's ``Adam.step``, with its options and its state, by torch's fused kernel.

    fairseq adds ``eps`` to the root of the uncorrected second moment, torch to that of the corrected one, so torch's
    is ``eps / sqrt(1 - beta2^step)``. Half precision and AMSGrad are left to fairseq's own.
    """
    half = (parameter.dtype != torch.float32 for group in optimizer.param_groups for parameter in group["params"])
    if any(half) or any(group["amsgrad"] for group in optimizer.param_groups):
        return _stock_step(optimizer, closure)
    loss = None if closure is None else closure()
    for group in optimizer.param_groups:
        for step, parameters in _by_step(optimizer, group["params"]).items():
            _update(optimizer, group, step, parameters)
    return loss


def _by_step(optimizer: Adam, parameters: list[torch.nn.Parameter]) -> dict[int, list[torch.nn.Parameter]]:
    """Those that have a gradient, by the number of the update that they are to make."""
    found: dict[int, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.grad is None:
            continue
        state = optimizer.state[parameter]
        if not state:
            state |= {"step": 0, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
        state["step"] += 1
        found.setdefault(state["step"], []).append(parameter)
    return found


@torch.no_grad()
def _update(optimizer: Adam, group: dict[str, Any], step: int, parameters: list[torch.nn.Parameter]) -> None:
    states = [optimizer.state[parameter] for parameter in parameters]
    beta1, beta2 = group["betas"]
    adamw(
        parameters,
        [parameter.grad for parameter in parameters],
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        list(torch.full((len(parameters),), step - 1.0, device=parameters[0].device).unbind()),
        fused=True,
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"] / math.sqrt(1 - beta2**step),
        maximize=False,
    )
