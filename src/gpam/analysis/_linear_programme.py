"""min over x of ``a ||X - 1 x^T||_1 + b ||X - 1 x^T||_inf``, as a linear programme, many at a time.

::

    minimise  a F + b G       subject to  u - v + x_j = X_ij,  u, v >= 0          u + v = |X_ij - x_j| at the minimum
                                          sum_i (u + v) <= F,  sum_j (u + v) <= G
    its dual: maximise sum y X  subject to  |y_ij| <= p_j + q_i,  sum_i y_ij = 0,  sum p = a,  sum q = b,  p, q >= 0

Solved by a primal-dual interior-point method with Mehrotra's predictor and corrector (1992) from a feasible start. All
unknowns of a Newton step but one for each token are eliminated by hand, so a step costs one ``tokens x tokens`` system.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from gpam.analysis.norms import norms_beside

_STEPS = 60
_SHORT_OF_THE_WALL = 0.995


def lower_bound(x: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """``min over r of sum_ij (p_j + q_i) |X_ij - r_j|``, exact (weighted medians): by weak duality no more than
    ``a ||.||_1 + b ||.||_inf`` of any row, ``a = sum p``, ``b = sum q``. ``x`` ``[batch, tokens, width]``, ``p``
    ``[batch, width]``, ``q`` ``[batch, tokens]``."""
    weight = p.unsqueeze(-2) + q.unsqueeze(-1)
    ordered, order = x.sort(dim=-2)
    cumulated = weight.gather(-2, order).cumsum(-2)
    place = (cumulated < cumulated[..., -1:, :] / 2).sum(-2, keepdim=True).clamp(max=x.shape[-2] - 1)
    median = ordered.gather(-2, place)
    return (weight * (x - median).abs()).sum((-2, -1))


class _State(NamedTuple):
    """Primal and dual variables; the dual of ``sum <= F`` is ``p``, its slack ``a``, and so on."""

    u: Tensor
    v: Tensor
    a: Tensor
    b: Tensor
    zu: Tensor
    zv: Tensor
    p: Tensor
    q: Tensor

    @property
    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Variables whose products vanish at the solution."""
        return [(self.u, self.zu), (self.v, self.zv), (self.a, self.p), (self.b, self.q)]


def minimise(x: Tensor, weight: Tensor, accuracy: float) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """A minimising row ``[batch, width]`` for ``x`` ``[batch, tokens, width]`` and ``weight`` ``[batch, 2]``, both
    positive, and dual weights ``p``, ``q`` that sum to them; ends when value and dual value agree to the share
    ``accuracy``. Entries of ``x`` should be of the order of 1."""
    batch, tokens, width = x.shape
    state, row = _start(x, weight)
    count = 2 * tokens * width + width + tokens
    for _ in range(_STEPS):
        gap = sum((one * other).flatten(1).sum(-1) for one, other in state.pairs)
        value = (weight * torch.stack(norms_beside(x, row), dim=-1)).sum(-1)
        if (gap <= accuracy * value).all():
            break
        mean = (gap / count).view(batch, 1, 1)
        system = _System(state)
        _, affine = system.step([-one * other for one, other in state.pairs])
        reached = sum(
            (one * other).flatten(1).sum(-1) for one, other in _moved(state, affine, *_lengths(state, affine)).pairs
        )
        target = mean * ((reached / gap) ** 3).view(batch, 1, 1)
        corrected = [
            _like(target, one) - one * other - d_one * d_other
            for (one, other), (d_one, d_other) in zip(state.pairs, affine.pairs, strict=True)
        ]
        d_row, change = system.step(corrected)
        primal, dual = (_SHORT_OF_THE_WALL * length for length in _lengths(state, change))
        moved = _moved(state, change, primal.clamp(max=1), dual.clamp(max=1))
        if not all(torch.isfinite(part).all() for part in (*moved, d_row)):
            break  # rounding has the last word: the state before it is as good as it gets
        state, row = moved, row + primal.clamp(max=1).unsqueeze(-1) * d_row
    p, q = (
        dual * (total / dual.sum(-1)).unsqueeze(-1) for dual, total in zip(state[6:], weight.unbind(-1), strict=True)
    )
    return row, (p, q)


def _like(target: Tensor, other: Tensor) -> Tensor:
    return target if other.dim() == 3 else target.squeeze(-1)


def _start(x: Tensor, weight: Tensor) -> tuple[_State, Tensor]:
    """Strictly feasible on both sides: every token's distance a little more than it is, all dual weights alike."""
    _, tokens, width = x.shape
    row = (x.amax(-2) + x.amin(-2)) / 2
    rest = x - row.unsqueeze(-2)
    margin = 0.1 * rest.abs().mean((-2, -1), keepdim=True)
    u, v = rest.clamp(min=0) + margin, (-rest).clamp(min=0) + margin
    by_column, by_token = (u + v).sum(-2), (u + v).sum(-1)
    a = 1.1 * by_column.amax(-1, keepdim=True) - by_column
    b = 1.1 * by_token.amax(-1, keepdim=True) - by_token
    p = (weight[:, :1] / width).expand(-1, width)
    q = (weight[:, 1:] / tokens).expand(-1, tokens)
    slack = p.unsqueeze(-2) + q.unsqueeze(-1)
    return _State(u, v, a, b, slack.clone(), slack.clone(), p.clone(), q.clone()), row


def _lengths(state: _State, change: _State) -> tuple[Tensor, Tensor]:
    """How far one may go until a primal or a dual variable vanishes, ``[batch]`` each."""

    def until(values: tuple[Tensor, ...], changes: tuple[Tensor, ...]) -> Tensor:
        ratios = [
            torch.where(d < 0, -value / d, torch.inf).flatten(1).amin(-1)
            for value, d in zip(values, changes, strict=True)
        ]
        return torch.stack(ratios).amin(0).clamp(max=1 / _SHORT_OF_THE_WALL)

    return until(state[:4], change[:4]), until(state[4:], change[4:])


def _moved(state: _State, change: _State, primal: Tensor, dual: Tensor) -> _State:
    lengths = [primal] * 4 + [dual] * 4
    return _State(
        *(
            value + length.view(-1, *[1] * (value.dim() - 1)) * d
            for value, d, length in zip(state, change, lengths, strict=True)
        )
    )


class _System:
    """The Newton equations at one state; names follow the derivation: ``dy`` and the slacks are eliminated first, then
    the rows ``dx``, then ``dp``, and the system left over is in ``dq`` and the two bounds."""

    def __init__(self, state: _State) -> None:
        self.state = state
        theta_u, theta_v = state.u / state.zu, state.v / state.zv
        self.theta = theta_u, theta_v
        self.both = theta_u + theta_v
        self.tilt = (theta_u - theta_v) / self.both
        share = 4 * theta_u * theta_v / self.both
        self.inverse = 1 / self.both
        self.stiffness = self.inverse.sum(-2)
        self.tilts = self.tilt.sum(-2)
        self.scaled_tilts = self.tilts / self.stiffness
        self.p_diagonal = share.sum(-2) + state.a / state.p + self.tilts * self.scaled_tilts
        self.coupling = share + self.tilt * self.scaled_tilts.unsqueeze(-2)
        tokens = share.shape[-2]
        scaled = self.coupling / self.p_diagonal.unsqueeze(-2)
        matrix = (self.tilt / self.stiffness.unsqueeze(-2)) @ self.tilt.mT - scaled @ self.coupling.mT
        matrix.diagonal(dim1=-2, dim2=-1).add_(share.sum(-1) + state.b / state.q)
        self.scaled = scaled
        border = matrix.new_zeros(len(matrix), tokens + 2, tokens + 2)
        border[:, :tokens, :tokens] = matrix
        border[:, :tokens, tokens] = border[:, tokens, :tokens] = -scaled.sum(-1)
        border[:, :tokens, tokens + 1] = border[:, tokens + 1, :tokens] = 1
        border[:, tokens, tokens] = -(1 / self.p_diagonal).sum(-1)
        self.factors = torch.linalg.lu_factor_ex(border)[:2]

    def step(self, products: list[Tensor]) -> tuple[Tensor, _State]:
        """The change that moves each pair's product by ``products``, and the change of the row."""
        state, tokens = self.state, self.tilt.shape[-2]
        ru, rv, ra, rb = products
        eu, ev, ea, eb = ru / state.zu, rv / state.zv, ra / state.p, rb / state.q
        e = ev - eu
        along = eu + ev + self.tilt * e
        pulled = (self.inverse * e).sum(-2)
        h = ea + along.sum(-2) - self.scaled_tilts * pulled
        g = eb + along.sum(-1) - (self.tilt * (pulled / self.stiffness).unsqueeze(-2)).sum(-1)
        right = torch.cat(
            [
                g - (self.scaled * h.unsqueeze(-2)).sum(-1),
                -(h / self.p_diagonal).sum(-1, keepdim=True),
                torch.zeros_like(g[:, :1]),
            ],
            dim=-1,
        )
        solved = torch.linalg.lu_solve(*self.factors, right.unsqueeze(-1)).squeeze(-1)
        dq, d_bound = solved[:, :tokens], solved[:, tokens : tokens + 1]
        dp = (h - (self.coupling * dq.unsqueeze(-1)).sum(-2) - d_bound) / self.p_diagonal
        d_row = (pulled + self.tilts * dp + (self.tilt * dq.unsqueeze(-1)).sum(-2)) / self.stiffness
        d_weight = dp.unsqueeze(-2) + dq.unsqueeze(-1)
        dy = (e - d_row.unsqueeze(-2)) * self.inverse + self.tilt * d_weight
        dzu, dzv = d_weight - dy, d_weight + dy
        theta_u, theta_v = self.theta
        du, dv = eu - theta_u * dzu, ev - theta_v * dzv
        da, db = ea - state.a / state.p * dp, eb - state.b / state.q * dq
        return d_row, _State(du, dv, da, db, dzu, dzv, dp, dq)
