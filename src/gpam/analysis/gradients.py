"""Gradient norms."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


def gradient_norms(parameters: nn.Module | Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> dict[str, float]:
    """``||dL/dW||_F`` of each parameter that has a gradient, by name.

    Takes a module, or names with parameters. One transfer from the device, whatever the number of parameters.
    """
    if isinstance(parameters, nn.Module):
        parameters = parameters.named_parameters()
    elif isinstance(parameters, Mapping):
        parameters = parameters.items()
    found = {name: parameter.grad for name, parameter in parameters if parameter.grad is not None}
    if not found:
        return {}
    norms = torch.stack([_norm(grad) for grad in found.values()])
    return dict(zip(found, norms.tolist(), strict=True))


def _norm(grad: Tensor) -> Tensor:
    """In float32, or in float64 where the gradient is."""
    return torch.linalg.vector_norm(grad, dtype=torch.promote_types(grad.dtype, torch.float32)).double()
