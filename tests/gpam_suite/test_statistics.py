"""What seeds say: means, t tests, Holm's correction, power and the hierarchical bootstrap, by independent formulas."""

import csv
import io
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_factory import add_document_scores, failed, make_record, store, tabulate
from scipy import stats

from gpam_suite.records.folder import Record
from gpam_suite.records.lines import write_scores
from gpam_suite.report.tables import csv_table
from gpam_suite.stats.aggregate import read_aggregates
from gpam_suite.stats.bootstrap import hierarchical_bootstrap, paired_bootstrap, resample
from gpam_suite.stats.inside_claim import QuantityInside, RankCorrelation, holm_corrected
from gpam_suite.stats.over_seeds import difference, holm, summarise

# -------------------------------------------------------------------------------------------------- means and t tests


def test_summary_by_hand():
    summary = summarise([2.0, 4.0, 9.0])
    assert summary.mean == 5.0
    assert summary.sd == pytest.approx(13**0.5)  # (9 + 1 + 16) / 2
    assert summarise([7.0]).sd is None
    assert summarise([]) == type(summary)(None, None)


def test_paired_by_hand():
    found = difference({1: 9.0, 2: 11.0, 3: 13.0}, {1: 10.0, 2: 12.0, 3: 11.0})
    # differences -1, -1, 2: mean 0, sd sqrt(3), t(0.975, 2) = 4.302653
    assert found.estimate == pytest.approx(0)
    assert (found.low, found.high) == pytest.approx((-4.302653, 4.302653), abs=1e-5)
    assert found.method == "paired t over 3 seeds" and found.p_value == pytest.approx(1)
    assert difference({3: 13.0, 2: 11.0, 1: 9.0}, {2: 12.0, 1: 10.0, 3: 11.0}) == found
    # seeds of one side alone play no part
    assert difference({1: 9.0, 2: 11.0, 3: 13.0, 7: 99.0}, {5: 0.0, 2: 12.0, 1: 10.0, 3: 11.0}) == found


def test_welch_by_hand():
    a, b = [29.0, 31.0, 33.0], [25.0, 26.0, 27.5, 25.5]
    found = difference(dict(enumerate(a)), dict(enumerate(b, start=100)))
    va, vb = (np.var(side, ddof=1) / len(side) for side in (a, b))
    error, freedom = (va + vb) ** 0.5, (va + vb) ** 2 / (va**2 / 2 + vb**2 / 3)
    half = stats.t.ppf(0.975, freedom) * error
    assert (found.low, found.high) == pytest.approx((5 - half, 5 + half))
    assert found.p_value == pytest.approx(2 * stats.t.sf(5 / error, freedom))
    assert found.method == "Welch t over 3 and 4 seeds"


@pytest.mark.parametrize(
    "baseline, beside", [({1: 30.0}, 30.0), ({1: 30.0, 2: 31.0}, 30.0), ({2: 30.0, 3: 31.0}, 30.5)]
)
def test_one_seed_has_no_interval_and_is_set_against_the_same_seed(baseline, beside):
    found = difference({1: 29.0}, baseline)
    assert found.estimate == 29.0 - beside
    assert found.low is None
    assert "one seed" in found.method


@pytest.mark.parametrize("seeds", [(1, 2), (3, 4)])
def test_seeds_that_do_not_vary_have_no_interval(seeds):
    """Scores at a ceiling move in steps: an interval of no width would be a verdict made of rounding."""
    found = difference({1: 0.3, 2: 0.1 + 0.2}, dict.fromkeys(seeds, 0.1))
    assert (found.estimate, found.low, found.high, found.p_value) == (pytest.approx(0.2), None, None, None)
    assert found.method == "no interval: no spread between seeds"


def test_interval_covers_the_truth_about_95_times_in_100():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(500):
        a, b = rng.normal(30, 0.4, 3), rng.normal(30.5, 0.2, 3)
        found = difference(dict(enumerate(a)), dict(enumerate(b)))
        hits += found.low <= -0.5 <= found.high
    assert 460 <= hits <= 490  # three standard errors of 475 are 15


# ---------------------------------------------------------------------------------------------------------------- Holm


def test_holm_by_hand():
    # sorted 0.01, 0.03, 0.04: times 3, 2, 1 gives 0.03, 0.06, 0.04, and the last may not be below the one before it
    assert holm({"a": 0.04, "b": 0.01, "c": 0.03}) == pytest.approx({"a": 0.06, "b": 0.03, "c": 0.06})
    assert holm({}) == {}
    # one that was lost is the third all the same
    assert holm({"a": 0.04, "b": 0.01, "c": None}) == pytest.approx({"a": 0.08, "b": 0.03})
    assert holm({"a": 0.2}) == {"a": 0.2}
    assert holm({"a": 0.7, "b": 0.8}) == {"a": 1.0, "b": 1.0}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closure_of_bonferroni(p_values):
    """By the closure principle: p of a hypothesis is the largest Bonferroni p of any intersection that it is in."""
    everyone = range(len(p_values))
    subsets = [subset for size in range(1, len(p_values) + 1) for subset in combinations(everyone, size)]
    bonferroni = {subset: min(1.0, len(subset) * min(p_values[i] for i in subset)) for subset in subsets}
    closed = [max(p for subset, p in bonferroni.items() if i in subset) for i in everyone]
    assert holm(dict(enumerate(p_values))) == pytest.approx(dict(enumerate(closed)))


# ---------------------------------------------------------------------------------------------- hierarchical bootstrap


def _accuracies(folder, name, table, first_seed=1):
    """A run for each row of ``table`` (right answers of ten by sequence), as evaluation leaves them."""
    runs = []
    for seed, correct in enumerate(table, start=first_seed):
        metrics = {"test_accuracy": float(10 * np.mean(correct))}
        record = Record(folder / f"{name}{seed}", {"task": "recall", "seed": seed, "metrics": metrics})
        rows = [{"sequence": i, "answers": 10, "correct": int(n)} for i, n in enumerate(correct)]
        write_scores(record.folder, rows)
        runs.append(resample(record))
    return runs


def _tables(seeds, units, spread):
    rng = np.random.default_rng(7)
    difficulty = rng.uniform(0.3, 0.8, units)
    shift = rng.normal(0, spread, (2, seeds, 1))
    return rng.binomial(10, np.clip(difficulty + shift + [[[0.05]], [[0.0]]], 0, 1))


def _crossed_variance(table):
    """Variance of sum_ki w_k v_i x_ki / (K n) with multinomial w and v: Cov(w_k, w_l) = (k == l) - 1/K, so for v."""
    seeds, units = table.shape
    over_seeds, over_units = np.eye(seeds) - 1 / seeds, np.eye(units) - 1 / units
    flat = table.ravel()
    cross = np.kron(1 + over_seeds, 1 + over_units) - 1
    return flat @ cross @ flat / (seeds * units) ** 2


def _percentile_sd(found):
    return (found.high - found.low) / (2 * 1.959964)


def test_hierarchical_spread_is_the_exact_one_of_crossed_draws(tmp_path):
    b, a = _tables(seeds=6, units=40, spread=0.02)
    found = hierarchical_bootstrap(_accuracies(tmp_path, "b", b), _accuracies(tmp_path, "a", a))
    exact = 10 * _crossed_variance((b - a).astype(float)) ** 0.5
    assert _percentile_sd(found) == pytest.approx(exact, rel=0.12)  # 1000 draws know a sd to 2 %, its quantiles to 4 %
    assert found.estimate == pytest.approx(10 * (b - a).mean())
    # neither source alone explains it, so a test that drew one of them would fail here
    items = (10 * (b - a).mean(axis=0)).std() / 40**0.5
    seeds = (10 * (b - a).mean(axis=1)).std() / 6**0.5
    assert max(items, seeds) < 0.85 * exact


def test_different_seeds_are_drawn_apart(tmp_path):
    b, a = _tables(seeds=6, units=80, spread=0.05)
    a[:] = a[np.argsort(a.sum(axis=1))]  # paired, the seeds' own levels would cancel or add up
    b[:] = b[np.argsort(b.sum(axis=1))]
    ours = _accuracies(tmp_path, "b", b)
    paired = hierarchical_bootstrap(ours, _accuracies(tmp_path, "a", a))
    apart = hierarchical_bootstrap(ours, _accuracies(tmp_path, "c", a, first_seed=20))
    level = [10 * table.mean(axis=1) for table in (a, b)]
    added = 2 * np.cov(*level, ddof=0)[0, 1] / 6  # what pairing takes out of the variance
    assert _percentile_sd(apart) ** 2 - _percentile_sd(paired) ** 2 == pytest.approx(added, rel=0.3)


def test_without_spread_between_seeds_it_is_the_paired_bootstrap(tmp_path):
    (b, *_), (a, *_) = _tables(seeds=1, units=40, spread=0.0)
    systems, baselines = _accuracies(tmp_path, "b", [b] * 3), _accuracies(tmp_path, "a", [a] * 3)
    found, test_set = hierarchical_bootstrap(systems, baselines), paired_bootstrap(systems, baselines)
    assert (found.low, found.high) == pytest.approx((test_set.low, test_set.high))
    assert hierarchical_bootstrap(systems[:1], baselines) is None


# -------------------------------------------------------------------------------------------------------------- tables

MANY = ["Over seeds, Holm", "On the test set, Holm"]


def _models(results, *models):
    values = {"softmax": (30.1, 30.2, 30.3), "dagpam": (29.2, 29.4, 29.6), "nap": (30.2, 30.2, 30.5)}
    records = [
        make_record(model=model, seed=seed, value=value)
        for model in models
        for seed, value in enumerate(values[model], start=1)
    ]
    for record in store(results, *records):
        add_document_scores(record)
    (found,) = read_aggregates(results)
    return found


def _cells(page):
    head, _, *lines = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")][:5]
    return {line[0]: dict(zip(head, line, strict=True)) for line in lines}


def test_several_comparisons_are_corrected(tmp_path):
    found = _models(tmp_path, "softmax", "dagpam", "nap")
    page = tabulate(tmp_path)[0].read_text()
    rows = _cells(page)
    differences = {"daGPAM": [-0.9, -0.8, -0.7], "NAP": [0.1, 0.0, 0.2]}
    raw = {name: stats.ttest_1samp(values, 0).pvalue for name, values in differences.items()}
    assert raw["daGPAM"] < raw["NAP"]
    assert rows["daGPAM"]["Over seeds, Holm"] == f"p = {2 * raw['daGPAM']:.3f}"
    assert rows["NAP"]["Over seeds, Holm"] == f"p = {raw['NAP']:.3f}"
    assert rows["Softmax"]["Over seeds, Holm"] == "–"
    assert rows["daGPAM"]["On the test set, Holm"] == "p = 0.002"  # twice 1/1001
    assert rows["daGPAM"]["Difference over seeds and test set [95 %]"].startswith("-0.80 [")
    assert "The p values under *Holm* are corrected for the number of rows" in page
    line = list(csv.DictReader(io.StringIO(csv_table(found))))[1]
    assert float(line["difference_p"]) == pytest.approx(raw["daGPAM"], rel=1e-5)
    assert float(line["difference_p_holm"]) == pytest.approx(2 * raw["daGPAM"], rel=1e-5)


def test_one_comparison_needs_no_correction(tmp_path):
    found = _models(tmp_path, "softmax", "dagpam")
    page = tabulate(tmp_path)[0].read_text()
    assert not any(title in page for title in MANY)
    line = list(csv.DictReader(io.StringIO(csv_table(found))))[1]
    assert line["difference_p_holm"] == line["difference_p"] != ""


def test_one_shared_seed_of_several_is_no_pairing():
    assert difference({1: 29.0, 2: 31.0}, {2: 30.0, 3: 28.0}).method == "Welch t over 2 and 2 seeds"


def test_rank_correlations_are_one_family():
    rows = [QuantityInside(str(p), {}, {1: 1.0}, None, (None, RankCorrelation(0.5, p))) for p in (0.01, 0.04)]
    assert [row.with_score[1].p_value for row in holm_corrected(rows)] == pytest.approx([0.02, 0.04])


# ----------------------------------------------------------------------------------------------------- an experiment's


def test_the_test_set_is_compared_on_the_seeds_of_both(tmp_path):
    made = [make_record(seed=seed, value=30 + seed) for seed in (1, 2)]
    made += [make_record(model="dagpam", seed=seed, value=29 + seed) for seed in (1, 2, 7)]
    for record in store(tmp_path, *made):
        add_document_scores(record)
    (found,) = read_aggregates(tmp_path)
    assert found.test_set(found.rows[1]).estimate == pytest.approx(-1)
    assert found.seeds_and_test_set(found.rows[1]).estimate == pytest.approx(-1)


def test_a_lost_model_counts_in_holms_family(tmp_path):
    values = {"softmax": (30.1, 30.2, 30.3), "dagpam": (29.2, 29.4, 29.6)}
    made = [make_record(model=model, seed=k, value=v) for model, own in values.items() for k, v in enumerate(own, 1)]
    store(tmp_path, *made, *(failed(make_record(model="nap", seed=seed)) for seed in (1, 2, 3)))
    store(tmp_path, failed(make_record(model="coda", seed=1)))  # one seed was never to be tested
    (found,) = read_aggregates(tmp_path)
    own = found.row_of("dagpam")
    assert found.corrected(found.difference)[own.key] == pytest.approx(2 * found.difference(own).p_value)


def test_a_side_without_spread_is_tested_where_the_other_has_some():
    found = difference({1: 1.0, 2: 2.0, 3: 4.0}, {4: 0.0, 5: 0.0, 6: 0.0})
    wanted = stats.ttest_ind([0.0, 0.0, 0.0], [1.0, 2.0, 4.0], equal_var=False)
    assert found.method.startswith("Welch") and found.p_value == pytest.approx(wanted.pvalue)
