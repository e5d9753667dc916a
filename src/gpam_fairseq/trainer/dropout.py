"""Dropout that costs what reading and writing costs, where ``torch.nn.functional.dropout`` draws for every element.

Two forms, both on a CPU and both following from torch's generator:

- By the compiled library (float32, where it is there): a seed is drawn, and which elements fall is a function of seed
  and place, computed in the pass that writes them, so that no mask is kept.
- Else the mask is drawn as 16-bit words: four elements share one 64-bit draw, whose bits are independent, so
  neighbours are as well. An element is kept with probability ``1 - p`` rounded to a multiple of 2^-16, and multiplied
  by its inverse.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gpam.attention.backends import calibration
from gpam.attention.backends.compiled import library
from gpam.attention.backends.dropout import drawn_seed, fill_dropout, random_words


class _Compiled(torch.autograd.Function):
    """The gradient is dropped as the input was, by the same seed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.p, ctx.seed = p, seed
        rows = x.contiguous()
        out = torch.empty_like(rows)
        library.load().gpam_dropout(rows.data_ptr(), out.data_ptr(), x.numel(), seed, *library.dropout_numbers(p))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Compiled.apply(grad, ctx.p, ctx.seed), None, None


class _Drawn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        words = torch.empty(random_words(x.numel()), dtype=torch.int64, device=x.device)
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
    if x.dtype == torch.float32 and calibration.current().library is not None and library.load() is not None:
        return _Compiled.apply(x, p, drawn_seed())
    return _Drawn.apply(x, p)
