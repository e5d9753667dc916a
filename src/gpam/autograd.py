"""What the autograd functions of this package share."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """For a ``backward`` that returns a tuple: whoever differentiates its gradients gets a RuntimeError.

    The inputs that they depend on must be among the function's saved tensors.

    PyTorch's decorator of this name raises only where the incoming gradient requires one: ``grad(out.sum(), q,
    create_graph=True)`` then gives constants, and every second derivative through them is left out in silence.
    """

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> Any:
        with torch.no_grad():
            found = backward(ctx, *grads)
        if not torch.is_grad_enabled():  # no create_graph
            return found
        # What the gradients depend on, so that whichever of it a second derivative is taken for, the guard is met.
        sources = [tensor for tensor in (*grads, *ctx.saved_tensors) if tensor is not None and tensor.requires_grad]
        return tuple(None if tensor is None else _Once.apply(tensor, *sources) for tensor in found)

    return checked


class _Once(torch.autograd.Function):
    """``tensor``, as the result of a function of ``sources`` that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, *sources: Tensor) -> Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        raise RuntimeError(
            "a second derivative (create_graph=True) through a fused attention backend or cross entropy by chunks, "
            "which have none: use backend='reference' (of a module: layer.mechanism.backend = 'reference'), and switch "
            "the fast step off (gpu.fast=false, GPAM_FAST=0)"
        )
