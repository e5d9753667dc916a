"""Matrix norms of the paper's section on rank collapse."""

import torch
from torch import Tensor


def column_norm(x: Tensor) -> Tensor:
    """``||X||_1 = max_j sum_i |X_ij|``: ``[..., rows, columns]`` to ``[...]``."""
    return x.abs().sum(-2).amax(-1)


def row_norm(x: Tensor) -> Tensor:
    """``||X||_inf = max_i sum_j |X_ij|``: ``[..., rows, columns]`` to ``[...]``."""
    return x.abs().sum(-1).amax(-1)


def norms_beside(x: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
    """Both of ``x`` less ``row`` in each of its rows: ``[..., rows, columns]`` and ``[..., columns]`` to ``[...]``."""
    rest = x - row.unsqueeze(-2)
    return column_norm(rest), row_norm(rest)


def composite_norm(x: Tensor) -> Tensor:
    """``||X||_{1,inf} = sqrt(||X||_1 ||X||_inf)`` (Dong et al. 2021): ``[..., rows, columns]`` to ``[...]``, float64.

    Submultiplicative, but no norm: ``||A + B||`` may exceed ``||A|| + ||B||``.
    """
    x = x.to(torch.float64)
    return (column_norm(x) * row_norm(x)).sqrt()
