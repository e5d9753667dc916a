"""What a few seeds can say: mean, spread, and the difference to a baseline with its interval.

The seeds are the sample: these intervals answer "would another seed tell the same story?". How a number would move with
another test set is a different question, answered in :mod:`gpam_suite.stats.bootstrap`.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
ENOUGH_SEEDS = 3
POWER = 0.8
MOST_SEEDS = 1000
_ROUNDING = 1e-12
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Summary:
    """``count`` values with their ``mean`` and sample standard deviation ``sd`` (None below two values)."""

    count: int
    mean: float | None
    sd: float | None


@dataclass(frozen=True)
class Difference:
    """Mean of a model minus mean of its baseline, over seeds.

    ``low`` and ``high`` bound the 95 % interval and are None where the seeds have no spread to make one of; ``method``
    says how they were made, or why not. ``p_value`` is the two-sided p value of the same t test:
    ``2 P(T > |d| / error)``.
    """

    estimate: float
    low: float | None
    high: float | None
    method: str
    p_value: float | None = None

    @property
    def holds_zero(self) -> bool | None:
        """Whether the interval holds zero; None without an interval."""
        return None if self.low is None or self.high is None else self.low <= 0 <= self.high


def side_of_zero(low: float | None, high: float | None) -> int:
    """1 where an interval lies above zero, -1 where below; 0 where it holds zero or there is none."""
    return 0 if low is None or high is None else int(low > 0) - int(high < 0)


def summarise(values: Sequence[float]) -> Summary:
    """Mean ``m = sum(x)/n`` and sample standard deviation ``sqrt(sum((x-m)^2)/(n-1))``."""
    n = len(values)
    mean = float(np.mean(values)) if n else None
    return Summary(n, mean, float(np.std(values, ddof=1)) if n > 1 else None)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % t interval of the mean, ``m -+ t(n-1) s/sqrt(n)`` (Student 1908); None below two values."""
    summary = summarise(values)
    if summary.mean is None or summary.sd is None:
        return None
    half = _t_quantile(summary.count - 1) * summary.sd / np.sqrt(summary.count)
    return float(summary.mean - half), float(summary.mean + half)


def beside(values: Mapping[int, Value], baseline: Mapping[int, Value]) -> Mapping[int, Value]:
    """What of ``baseline``, by seed, stands against ``values``: against a single seed the same one, which started from
    the same parameters and read the data in the same order; where the baseline lacks it, and against several, all."""
    same = {seed: baseline[seed] for seed in values if seed in baseline}
    return same if len(values) == 1 and same else baseline


def difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference:
    """Difference of the means with its 95 % interval; both arguments map a seed to its number.

    - The same two or more seeds on both sides: paired t, ``d -+ t(n-1) s_d / sqrt(n)`` over the differences ``d_k`` of
      seed ``k`` (Student 1908).
    - Different seeds, two or more on each side: Welch's t with ``v = s1^2/n1 + s2^2/n2`` and Satterthwaite's degrees of
      freedom ``v^2 / ((s1^2/n1)^2/(n1-1) + (s2^2/n2)^2/(n2-1))`` (Welch 1947).
    - One seed on a side: the difference (of a single seed to what is :func:`beside` it) and no interval; one number has
      no spread.
    - Differences that are all equal (scores at a ceiling, which move in steps): no interval either. One of no width
      would claim to know the spread.
    """
    baseline = beside(values, baseline)
    a, b = np.array(list(values.values())), np.array(list(baseline.values()))
    center = float(a.mean() - b.mean())
    if min(len(a), len(b)) < 2:
        return Difference(center, None, None, "no interval: one seed")
    if set(values) == set(baseline):
        error, freedom = summarise(_paired(values, baseline)).sd / np.sqrt(len(a)), len(a) - 1
        method = f"paired t over {len(a)} seeds"
    else:
        va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
        error, method = np.sqrt(va + vb), f"Welch t over {len(a)} and {len(b)} seeds"
        freedom = error and (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    if error <= _ROUNDING * max(abs(a).max(), abs(b).max()):
        return Difference(center, None, None, "no interval: no spread between seeds")
    half = _t_quantile(freedom) * error
    p_value = 2 * stats.t.sf(abs(center) / error, freedom)
    return Difference(center, float(center - half), float(center + half), method, float(p_value))


def _paired(values: Mapping[int, float], baseline: Mapping[int, float]) -> list[float]:
    return [values[seed] - baseline[seed] for seed in sorted(values)]


def _t_quantile(freedom: float) -> float:
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))


def holm(p_values: Mapping[Key, float | None]) -> dict[Key, float]:
    """Holm's corrected p values (1979, "A Simple Sequentially Rejective Multiple Test Procedure"), in the given order.

    With ``p(1) <= ... <= p(m)`` the i-th becomes ``max over j <= i of min(1, (m - j + 1) p(j))``. Calling those below
    0.05 different keeps the chance of even one false call below 0.05, however the tests depend on each other.

    A comparison that was run and has no p value (None), as seeds were lost or do not vary, counts as one of the m with
    p = 1 and gets none: what is lost makes no other difference clearer.
    """
    known = {key: p_value for key, p_value in p_values.items() if p_value is not None}
    corrected, highest = dict.fromkeys(known, 0.0), 0.0
    for rank, key in enumerate(sorted(known, key=known.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * known[key]))
        corrected[key] = highest
    return corrected


def power(count: int, effect: float) -> float:
    """Chance that a paired t test over ``count`` seeds finds a true difference of ``effect`` standard deviations.

    The two-sided test at 5 % rejects where ``|T| > q = t(0.975, n-1)``, and T follows the noncentral t distribution
    with ``n - 1`` degrees of freedom and noncentrality ``sqrt(n) effect``; so ``P(T > q) + P(T < -q)`` (Cohen 1988,
    chapter 2). ``effect`` is the mean of the differences by seed over their standard deviation, without a unit.
    """
    limit, shift = _t_quantile(count - 1), float(np.sqrt(count) * abs(effect))
    found = stats.nct.sf(limit, count - 1, shift), stats.nct.cdf(-limit, count - 1, shift)
    return float(np.nansum(found))  # the far tail of a large shift is zero, which scipy may give as NaN


def seeds_needed(values: Mapping[int, float], baseline: Mapping[int, float]) -> int | None:
    """Least number of seeds with which a paired t test finds the observed difference with a :func:`power` of 0.8.

    It takes the observed ``mean / sd`` of the differences by seed for the true one, which few seeds know badly: an
    order of magnitude, not a promise. None where it cannot be said: seeds that differ between the sides, fewer than
    two, no difference, or no spread. Above :data:`MOST_SEEDS` it is ``MOST_SEEDS + 1``.
    """
    if set(values) != set(baseline) or len(values) < 2:
        return None
    observed = summarise(_paired(values, baseline))
    if not observed.mean or not observed.sd:
        return None
    effect = observed.mean / observed.sd
    low, high = 2, MOST_SEEDS + 1
    while low < high:  # power grows with the number of seeds
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle, effect) >= POWER else (middle + 1, high)
    return low


def seeds_warning(count: int) -> str | None:
    """A sentence when ``count`` seeds are too few to tell a difference from chance; None when they are enough."""
    if count >= ENOUGH_SEEDS:
        return None
    if count < 2:
        return "One seed: the spread between seeds is unknown, so no difference can be told from chance."
    return f"{count} seeds: too few for a useful interval; {ENOUGH_SEEDS} are the least, five are better."
