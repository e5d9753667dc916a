"""The residual of a matrix of tokens: what is left of it beside its best approximation by equal tokens.

::

    res(X) = X - 1 x^T,   x the minimiser of  ||X - 1 x^T||_{1,inf} = sqrt(f(x) g(x))
    f(x) = ||X - 1 x^T||_1   = max_j sum_i |X_ij - x_j|        over columns: least at the medians
    g(x) = ||X - 1 x^T||_inf = max_i sum_j |X_ij - x_j|        over tokens: least at the centre of the smallest
                                                               ball in L1 distance that holds all tokens

``f`` and ``g`` are convex, their product is not, and its minimiser is neither's. So the curve of the best pairs
``(f, g)`` is enclosed: a minimum ``h`` of ``a f + b g`` (a linear programme) says that every pair lies above the line
``a f + b g = h``. A product is least at a corner of the region that such lines leave, so the lowest corner bounds the
minimum from below, and any ``x`` found on the way bounds it from above. Lines through the lowest corner are added until
the two bounds meet to ``tolerance``. Both are computed anew from ``x`` and from dual weights, so they hold whatever
rounding did to the solver.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gpam.analysis._linear_programme import lower_bound, minimise
from gpam.analysis.norms import composite_norm, norms_beside, row_norm
from gpam.errors import UsageError

_MOST_LINES = 30
_LINE_ACCURACY = 0.01  # of a line, as a share of the tolerance
_ALMOST_NOTHING = 1e-6  # weight of f where g alone is minimised: the programme needs both


class Residual(NamedTuple):
    """``norm`` is attained at ``row``; the minimum lies in ``[lower, norm]``. Shapes ``[...]``, ``[..., width]``."""

    norm: Tensor
    lower: Tensor
    row: Tensor


def residual_norm(x: Tensor, tolerance: float = 1e-4) -> Tensor:
    """``||res(X)||_{1,inf}`` of ``x`` ``[..., tokens, width]``: ``[...]``, float64, above the minimum by at most the
    share ``tolerance``; 0 where all tokens are equal."""
    return residual(x, tolerance).norm


def residual(x: Tensor, tolerance: float = 1e-4) -> Residual:
    """:func:`residual_norm` with the row that attains it and a proven lower bound of the minimum.

    Raises:
        UsageError: ``x`` is no matrix of tokens, or holds a number that is not finite.
    """
    x = _matrices(x)
    shape, x = x.shape, x.flatten(0, -3) if x.dim() > 2 else x.unsqueeze(0)
    middle = x.median(dim=-2).values
    centred = x - middle.unsqueeze(-2)
    scale = centred.abs().amax((-2, -1))
    norm, lower, row = torch.zeros_like(scale), torch.zeros_like(scale), middle.clone()
    spread = scale > 0  # elsewhere all tokens are equal
    if spread.any():
        found = _enclose(centred[spread] / scale[spread, None, None], tolerance)
        norm[spread], lower[spread] = found.norm * scale[spread], found.lower * scale[spread]
        row[spread] += found.row * scale[spread, None]
    return Residual(norm.reshape(shape[:-2]), lower.reshape(shape[:-2]), row.reshape(*shape[:-2], shape[-1]))


def _matrices(x: Tensor) -> Tensor:
    if x.dim() < 2 or 0 in x.shape[-2:]:
        raise UsageError(f"got a tensor of shape {list(x.shape)}, wanted [..., tokens, width] with at least one token")
    if not torch.isfinite(x).all():
        raise UsageError("the tokens hold numbers that are not finite (NaN or infinity): there is nothing to measure")
    return x.detach().to(torch.float64).contiguous()  # torch takes wrong medians of an expanded tensor


def _enclose(x: Tensor, tolerance: float) -> Residual:
    """The residuals of ``[batch, tokens, width]`` with medians of 0 and a spread."""
    middle = x.new_zeros(x.shape[0], x.shape[-1])
    f_least = norms_beside(x, middle)[0]
    weight = torch.stack([_ALMOST_NOTHING / f_least, 1 / row_norm(x)], dim=-1)
    accuracy = max(_LINE_ACCURACY * tolerance, 1e-10)
    centre, dual = minimise(x, weight, accuracy)
    g_least = lower_bound(x, torch.zeros_like(middle), dual[1] / dual[1].sum(-1, keepdim=True))
    # In units of its own minimum each of f and g is at least 1.
    units = torch.stack([f_least, g_least], dim=-1)
    best, row = _product(x, middle, units), middle.clone()
    _keep_better(x, centre, units, best, row)
    lines = [[(1.0, 0.0, 1.0), (0.0, 1.0, 1.0)] for _ in x]
    corners = torch.ones_like(units)
    for _ in range(_MOST_LINES):
        open_ = (best.sqrt() - corners.prod(-1).sqrt() > tolerance * best.sqrt()).nonzero().flatten()
        if not len(open_):
            break
        slopes = 1 / corners[open_]
        slopes = slopes / slopes.sum(-1, keepdim=True)
        point, dual = minimise(x[open_], slopes / units[open_], accuracy)
        least = lower_bound(x[open_], *dual)
        for index, slope, height in zip(open_.tolist(), slopes.tolist(), least.tolist(), strict=True):
            lines[index].append((*slope, height))
            corners[index] = corners.new_tensor(_lowest_corner(lines[index]))
        kept, kept_row = best[open_], row[open_]
        _keep_better(x[open_], point, units[open_], kept, kept_row)
        best[open_], row[open_] = kept, kept_row
    scale = units.prod(-1).sqrt()
    norm = composite_norm(x - row.unsqueeze(-2))
    return Residual(norm, torch.minimum(corners.prod(-1).sqrt() * scale, norm), row)


def _product(x: Tensor, row: Tensor, units: Tensor) -> Tensor:
    return (torch.stack(norms_beside(x, row), dim=-1) / units).prod(-1)


def _keep_better(x: Tensor, candidate: Tensor, units: Tensor, best: Tensor, row: Tensor) -> None:
    """Put ``candidate`` where its product is less than ``best``, in place."""
    value = _product(x, candidate, units)
    better = value < best
    best[better], row[better] = value[better], candidate[better]


def _lowest_corner(lines: list[tuple[float, float, float]]) -> tuple[float, float]:
    """The corner with the least product of ``{(f, g): a f + b g >= h for every line (a, b, h)}``."""
    slack, corners = 1 + 1e-12, []
    for i, (a, b, h) in enumerate(lines):
        for a2, b2, h2 in lines[:i]:
            determinant = a * b2 - a2 * b
            if abs(determinant) < 1e-12:
                continue
            f, g = (h * b2 - h2 * b) / determinant, (a * h2 - a2 * h) / determinant
            if all(a3 * f * slack + b3 * g * slack >= h3 for a3, b3, h3 in lines):
                corners.append((f, g))
    return min(corners, key=lambda corner: corner[0] * corner[1])
