"""What is known of a mechanism before it is built: its formula, its rows, where it works, and what it costs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpam.attention.site import Site


def products(count: int) -> Callable[[Site, int, int, Any], int]:
    """FLOPs of ``count`` matrix products of target x source x head_dim over all heads; softmax attention has two."""
    return lambda site, target, source, options: 2 * count * target * source * site.embed_dim


_TWO_PRODUCTS = products(2)


@dataclasses.dataclass(frozen=True)
class Facts:
    """One row of the catalogue of mechanisms.

    ``row_sum`` and ``weight_range`` are words; the numbers for a built module are its :meth:`Mechanism.row_sum` and
    :meth:`Mechanism.weight_range`. Where ``cross`` is false, cross attention keeps softmax. ``limits`` says why;
    ``note`` says what else a reader of the row has to know. ``departures`` says where ours is not what its source or
    the authors' code has, and what was chosen where they say nothing.

    ``extra_parameters(site, options)`` counts parameters beyond those of softmax attention at a site where the
    mechanism stands (default: none). ``flops(site, target, source, options)`` counts the forward operations of the
    core for one sentence (default: ``Q K^T`` and ``P V``), without the four projections that softmax attention has as
    well: two for each multiply-add of its matrix products (and distances), nothing for elementwise work, nothing saved
    by causality.
    """

    formula: str
    source: str
    row_sum: str
    weight_range: str
    negative: bool
    extra_parameters: Callable[[Site, Any], int] = lambda site, options: 0
    flops: Callable[[Site, int, int, Any], int] = _TWO_PRODUCTS
    cross: bool = True
    limits: str = ""
    note: str = ""
    departures: str = "none known"


def bounds_of_sum(*factors: float | Tensor) -> tuple[Tensor, Tensor]:
    """The least and the largest value of ``sum_i factors_i x_i`` where every ``x_i`` lies in ``[0, 1]``."""
    tensors = [torch.as_tensor(factor, dtype=torch.float64) for factor in factors]
    return sum(t.clamp(max=0) for t in tensors), sum(t.clamp(min=0) for t in tensors)
