"""Gradient norms."""

from collections.abc import Mapping

import torch
from torch import Tensor


def gradient_norms(parameters: Mapping[str, Tensor]) -> dict[str, float]:
    """``||dL/dW||_F`` of each parameter that has a gradient, by name; of a module: ``dict(model.named_parameters())``.

    One transfer from a device, whatever the number of parameters.
    """
    found = {name: parameter.grad for name, parameter in parameters.items() if parameter.grad is not None}
    if not found:
        return {}
    grads = [grad.coalesce().values() if grad.is_sparse else grad for grad in found.values()]
    norms = [torch.linalg.vector_norm(grad, dtype=torch.float64).to(grads[0].device) for grad in grads]
    return dict(zip(found, torch.stack(norms).tolist(), strict=True))
