"""What a few seeds can say: mean, spread, and the difference to a baseline with its interval.

The seeds are the sample: these intervals answer "would another seed tell the same story?". How a number would move with
another test set is a different question, answered in :mod:`gpam_suite.stats.bootstrap`.
"""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
ENOUGH_SEEDS = 3
_ROUNDING = 1e-12
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class Summary:
    """``mean`` (None of no values) and sample standard deviation ``sd`` (None below two values)."""

    mean: float | None
    sd: float | None


@dataclass(frozen=True)
class Difference:
    """Mean of a model minus mean of its baseline, over the seeds that :func:`shared` has.

    ``low`` and ``high`` bound the 95 % interval and are None where the seeds have no spread to make one of; ``method``
    says how they were made, or why not. ``p_value`` is the two-sided p value of the same test.
    """

    estimate: float
    low: float | None
    high: float | None
    method: str
    p_value: float | None = None


def summarise(values: Sequence[float]) -> Summary:
    """Mean ``m = sum(x)/n`` and sample standard deviation ``sqrt(sum((x-m)^2)/(n-1))``."""
    n = len(values)
    mean = float(np.mean(values)) if n else None
    return Summary(mean, float(np.std(values, ddof=1)) if n > 1 else None)


def shared(
    values: Mapping[int, Value], baseline: Mapping[int, Value]
) -> tuple[Mapping[int, Value], Mapping[int, Value]]:
    """What of both sides, by seed, is compared: the seeds that both have, as a seed starts from the same parameters and
    reads the data in the same order on either side. All seeds where they share none, or only one of several on each
    side."""
    both = [seed for seed in values if seed in baseline]
    if not both or (len(both) == 1 and min(len(values), len(baseline)) > 1):
        return values, baseline
    return {seed: values[seed] for seed in both}, {seed: baseline[seed] for seed in both}


def difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> Difference:
    """Difference of the means with its 95 % interval and the p value of the same t test, ``2 P(T > |d| / error)``; both
    arguments map a seed to its number.

    - Two or more seeds that both sides have: paired t over these, ``d -+ t(n-1) s_d / sqrt(n)`` with the differences
      ``d_k`` of seed ``k`` (Student 1908).
    - Different seeds, two or more on each side: Welch's t with ``v = s1^2/n1 + s2^2/n2`` and Satterthwaite's degrees of
      freedom ``v^2 / ((s1^2/n1)^2/(n1-1) + (s2^2/n2)^2/(n2-1))`` (Welch 1947).
    - One seed on a side: the difference (to the same seed, if it is there) and no interval; one number has no spread.
    - Differences that are all equal (scores at a ceiling, which move in steps): no interval either. One of no width
      would claim to know the spread.
    """
    values, baseline = shared(values, baseline)
    center = float(np.mean(list(values.values())) - np.mean(list(baseline.values())))
    if reason := _untestable(values, baseline):
        return Difference(center, None, None, f"no interval: {reason}")
    test = _t_test(values, baseline)
    low, high = test.confidence_interval(CONFIDENCE)
    paired = set(values) == set(baseline)
    method = f"paired t over {len(values)}" if paired else f"Welch t over {len(values)} and {len(baseline)}"
    return Difference(center, float(low), float(high), f"{method} seeds", float(test.pvalue))


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided t tests of a difference ``d`` against a bound ``D``, each at 5 % (Schuirmann 1987).

    ``p_below`` is the p value against ``d <= -D`` and ``p_above`` that against ``d >= D``: where it is below 0.05, a
    difference as large as the bound is excluded on that side.
    """

    p_below: float
    p_above: float

    @property
    def excludes_above(self) -> bool:
        return self.p_above < 1 - CONFIDENCE

    @property
    def p_value(self) -> float:
        """Below 0.05 both sides are excluded: the difference lies between the bounds."""
        return max(self.p_below, self.p_above)


def equivalence(values: Mapping[int, float], baseline: Mapping[int, float], bound: float) -> Equivalence | None:
    """With ``T`` of the t test's degrees of freedom: ``p_below = P(T > (d + D) / error)``, ``p_above = P(T < (d - D) /
    error)``; seeds and standard error as in :func:`difference`. None where that has no interval."""
    values, baseline = shared(values, baseline)
    if _untestable(values, baseline):
        return None
    below = _t_test(values, baseline, shift=bound, alternative="greater")
    above = _t_test(values, baseline, shift=-bound, alternative="less")
    return Equivalence(float(below.pvalue), float(above.pvalue))


def _untestable(values: Mapping[int, float], baseline: Mapping[int, float]) -> str | None:
    """Why there is no t test; None where there is one."""
    if min(len(values), len(baseline)) < 2:
        return "one seed"
    samples = [list(values.values()), list(baseline.values())]
    if set(values) == set(baseline):
        samples = [[values[seed] - baseline[seed] for seed in sorted(values)]]
    largest = max(map(abs, [*values.values(), *baseline.values()]))
    spread = max(float(np.std(sample, ddof=1)) for sample in samples)
    return "no spread between seeds" if spread <= _ROUNDING * largest else None


def _t_test(values: Mapping[int, float], baseline: Mapping[int, float], shift: float = 0.0, **options: str) -> Any:
    """Paired where both sides have the same seeds, else Welch's; ``shift`` is added to ``values``."""
    seeds = sorted(values)
    own = np.array([values[seed] for seed in seeds]) + shift
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of seeds that are all equal on one side of two
        if set(values) == set(baseline):
            return stats.ttest_rel(own, [baseline[seed] for seed in seeds], **options)
        return stats.ttest_ind(own, list(baseline.values()), equal_var=False, **options)


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
