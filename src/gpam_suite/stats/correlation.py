"""Rank correlation with an interval."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

FEWEST = 5


class RankCorrelation(NamedTuple):
    """Spearman's ``rho`` over ``count`` pairs and its 95 % interval."""

    rho: float
    low: float
    high: float
    count: int


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> RankCorrelation | None:
    """Spearman's rank correlation; ``tanh(atanh(rho) -+ 1.96 sqrt((1 + rho^2 / 2) / (n - 3)))`` bounds it (Bonett and
    Wright 2000). None below five pairs, or where one side does not vary."""
    if len(x) < FEWEST or len(set(x)) == 1 or len(set(y)) == 1:
        return None
    rho = float(stats.spearmanr(x, y).statistic)
    if abs(rho) > 1 - 1e-12:  # the formula has no width there
        return RankCorrelation(rho, rho, rho, len(x))
    half = stats.norm.ppf(0.975) * np.sqrt((1 + rho**2 / 2) / (len(x) - 3))
    low, high = np.tanh(np.arctanh(rho) + np.array([-half, half]))
    return RankCorrelation(rho, float(low), float(high), len(x))
