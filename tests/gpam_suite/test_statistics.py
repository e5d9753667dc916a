"""Seeds statistics against hand-computed numbers and scipy."""

import numpy as np
import pytest
from scipy import stats

from gpam_suite.stats.over_seeds import difference, mean_interval, seeds_warning, summarise

SIZES = [(2, 0), (3, 1), (8, 2)]


def test_summary_by_hand():
    summary = summarise([2.0, 4.0, 9.0])
    assert (summary.count, summary.mean) == (3, 5.0)
    assert summary.sd == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert summarise([7.0]).sd is None
    assert summarise([]) == type(summary)(0, None, None)


def test_mean_interval_against_scipy():
    values = [30.1, 29.4, 31.0, 30.3]
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert mean_interval(values) == pytest.approx((expected.low, expected.high))
    assert mean_interval([30.1]) is None


def test_paired_by_hand():
    found = difference({1: 9.0, 2: 11.0, 3: 13.0}, {1: 10.0, 2: 12.0, 3: 11.0})
    # differences -1, -1, 2: mean 0, sd sqrt(3), t(0.975, 2) = 4.302653
    assert found.estimate == pytest.approx(0)
    assert (found.low, found.high) == pytest.approx((-4.302653, 4.302653), abs=1e-5)
    assert found.method == "paired t over 3 seeds"
    assert found.holds_zero


@pytest.mark.parametrize(("size", "seed"), SIZES)
def test_paired_against_scipy(size, seed):
    values, baseline = np.random.default_rng(seed).normal(30, 1, (2, size))
    found = difference(dict(enumerate(values)), dict(enumerate(baseline)))
    test = stats.ttest_rel(values, baseline)
    expected = test.confidence_interval(0.95)
    assert found.p_value == pytest.approx(test.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("size", "seed"), SIZES)
def test_welch_against_scipy(size, seed):
    rng = np.random.default_rng(seed)
    values, baseline = rng.normal(29, 2, size), rng.normal(30, 1, 5)
    found = difference(dict(enumerate(values)), dict(enumerate(baseline, start=100)))
    test = stats.ttest_ind(values, baseline, equal_var=False)
    expected = test.confidence_interval(0.95)
    assert found.p_value == pytest.approx(test.pvalue, rel=1e-9)
    assert found.method == f"Welch t over {len(values)} and 5 seeds"
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-9)


def test_order_of_the_seeds_does_not_matter():
    a, b = {1: 30.0, 2: 31.0, 3: 29.0}, {3: 28.0, 1: 30.5, 2: 30.0}
    assert difference(a, b) == difference(dict(reversed(a.items())), dict(sorted(b.items())))


@pytest.mark.parametrize(
    "baseline, beside", [({1: 30.0}, 30.0), ({1: 30.0, 2: 31.0}, 30.0), ({2: 30.0, 3: 31.0}, 30.5)]
)
def test_one_seed_has_no_interval_and_is_set_against_the_same_seed(baseline, beside):
    found = difference({1: 29.0}, baseline)
    assert found.estimate == 29.0 - beside
    assert found.low is None
    assert found.holds_zero is None
    assert "one seed" in found.method


@pytest.mark.parametrize("seeds", [(1, 2), (3, 4)])
def test_seeds_that_do_not_vary_have_no_interval(seeds):
    """Scores at a ceiling move in steps: an interval of no width would be a verdict made of rounding."""
    found = difference({1: 0.3, 2: 0.1 + 0.2}, dict.fromkeys(seeds, 0.1))
    assert (found.estimate, found.low, found.high, found.p_value) == (pytest.approx(0.2), None, None, None)
    assert found.method == "no interval: no spread between seeds" and found.holds_zero is None


def test_interval_covers_the_truth_about_95_times_in_100():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(1000):
        a, b = rng.normal(30, 0.4, 3), rng.normal(30.5, 0.2, 3)
        found = difference(dict(enumerate(a)), dict(enumerate(b)))
        hits += found.low <= -0.5 <= found.high
    assert 930 <= hits <= 970  # three standard errors of 950 are 21


def test_seeds_warning():
    assert "One seed" in seeds_warning(1)
    assert "2 seeds: too few" in seeds_warning(2)
    assert seeds_warning(3) is None
