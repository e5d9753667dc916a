"""The paired bootstrap against sacreBLEU's own, against a normal approximation, and where it must refuse."""

import math

import numpy as np
import pytest
from record_factory import add_document_scores, make_record, store
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest
from scipy import stats

from gpam.errors import UsageError
from gpam_suite.records.lines import write_scores
from gpam_suite.stats.bootstrap import RESAMPLES, corpus_score, hierarchical_bootstrap, paired_bootstrap, resample

WORDS = [f"word{number}" for number in range(15)]


def _sentences(count=80):
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(5, 15))) for _ in range(count)]


def _translations(references, wrong, seed):
    """``references`` with a share of ``wrong`` words."""
    rng = np.random.default_rng(seed)
    return [
        " ".join(rng.choice(WORDS) if rng.random() < wrong else word for word in reference.split())
        for reference in references
    ]


def _segment_statistics(hypotheses, references):
    """Through sacreBLEU's public interface: corpus BLEU of each sentence alone."""
    scores = [BLEU().corpus_score([one], [[other]]) for one, other in zip(hypotheses, references, strict=True)]
    return [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]


def _nmt(results, hypotheses, references, **fields):
    bleu = BLEU().corpus_score(hypotheses, [references]).score
    (record,) = store(results, make_record(task="nmt", value=bleu, **fields))
    rows = _segment_statistics(hypotheses, references)
    write_scores(record.folder, [{"sentence": i, "bleu": row} for i, row in enumerate(rows)])
    return record


def test_no_match_at_all_is_bleu_zero():
    assert corpus_score("nmt", np.array([5, 5, 0, 0, 0, 0, 5, 4, 3, 2])) == 0


@pytest.mark.parametrize("wrong", [0.31, 0.36])
def test_resampled_test_sets_are_sacrebleus(tmp_path, monkeypatch, wrong):
    """By its formula our draws give its p value; ours, of the signed differences, is larger (two-sided)."""
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    references = _sentences()
    base, system = _translations(references, 0.3, 1), _translations(references, wrong, 2)
    ours, theirs = (
        resample(_nmt(tmp_path, system, references, model="dagpam")),
        resample(_nmt(tmp_path, base, references)),
    )
    found, sizes = paired_bootstrap([ours], [theirs]), np.abs(ours.samples - theirs.samples)
    _, scores = PairedTest([("base", base), ("system", system)], {"BLEU": BLEU()}, [references], test_type="bs")()
    one, other = scores["BLEU"]
    p_value = (1 + np.sum(sizes - sizes.mean() > abs(found.estimate))) / (1 + RESAMPLES)
    assert p_value == pytest.approx(other.p_value, abs=2e-3)  # theirs counts in single precision
    assert found.p_value > p_value
    signed = ours.samples - theirs.samples
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(signed, [2.5, 97.5])))
    as_far = np.sum(np.abs(signed - signed.mean()) >= abs(found.estimate))
    assert found.p_value == pytest.approx((1 + as_far) / (1 + RESAMPLES))
    assert found.estimate == pytest.approx(other.score - one.score, abs=1e-9)
    assert found.method == f"paired bootstrap over {len(references)} sentences, 1000 resamples"


def test_the_same_system_differs_in_nothing(tmp_path):
    references = _sentences(20)
    run = resample(_nmt(tmp_path, _translations(references, 0.3, 1), references))
    found = paired_bootstrap([run], [run])
    assert (found.estimate, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def _lm(results, word_losses, words, **fields):
    nll = np.asarray(word_losses) * words
    (record,) = store(results, make_record(value=float(np.exp(nll.sum() / np.sum(words))), **fields))
    rows = enumerate(zip(words, nll, strict=True))
    write_scores(record.folder, [{"document": i, "words": int(n), "nll": float(loss)} for i, (n, loss) in rows])
    return record


@pytest.mark.parametrize("ahead", [0.02, 0.008, 0.002])
def test_document_interval_and_p_value_agree_with_the_delta_method(tmp_path, ahead):
    """With documents of one size log perplexity is a mean, so Var(ppl_a - ppl_b) = Var(a_i ppl_a - b_i ppl_b) / n."""
    rng, n = np.random.default_rng(0), 400
    difficulty = rng.normal(3, 0.5, n)
    a, b = difficulty + rng.normal(-ahead, 0.1, n), difficulty + rng.normal(0, 0.1, n)
    words = np.full(n, 50)
    found = paired_bootstrap([resample(_lm(tmp_path, a, words, model="dagpam"))], [resample(_lm(tmp_path, b, words))])
    error = np.std(a * np.exp(a.mean()) - b * np.exp(b.mean()), ddof=1) / n**0.5
    assert found.estimate == pytest.approx(np.exp(a.mean()) - np.exp(b.mean()))
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.1)
    assert found.p_value == pytest.approx(2 * stats.norm.sf(abs(found.estimate) / error), abs=0.04)


def test_several_seeds_are_averaged(tmp_path):
    runs = store(tmp_path, *[make_record(seed=seed, value=30.0 + seed) for seed in (1, 2, 3)])
    for run in runs:
        add_document_scores(run)
    first, second, third = [resample(run) for run in runs]
    found = paired_bootstrap([second, third], [first])
    assert found.estimate == pytest.approx((32 + 33) / 2 - 31)
    assert found.low < found.estimate < found.high
    assert found.p_value < 0.01


@pytest.mark.parametrize("documents", [1, 5])
def test_scores_of_another_run_are_refused(tmp_path, documents):
    (record,) = store(tmp_path, make_record(value=20.00001))
    write_scores(record.folder, [{"document": i, "words": 10, "nll": 10 * math.log(20)} for i in range(documents)])
    with pytest.raises(UsageError, match=r"scores\.jsonl gives 20 but the record says 20\.00001"):
        resample(record)


@pytest.mark.parametrize(
    "rows",
    [
        [{"document": 0, "words": 3, "nll": 1.0}, {"document": 2, "words": 3, "nll": 1.0}],
        [{"document": 0, "words": 3, "nll": 1.0}, {"document": 1, "words": 3, "nll": None}],
        [{"document": 0, "words": 3}, {"document": 1, "words": 3}],
        [{"sentence": 0, "bleu": [1] * 10}, {"sentence": 1, "bleu": [1] * 10}],
    ],
)
def test_malformed_scores_are_refused(tmp_path, rows):
    (record,) = store(tmp_path, make_record())
    write_scores(record.folder, rows)
    with pytest.raises(UsageError, match="does not hold the document scores"):
        resample(record)


def test_different_test_sets_are_refused(tmp_path):
    long = resample(_lm(tmp_path, [3.0, 3.1, 3.2], np.array([10, 20, 30])))
    short = resample(_lm(tmp_path, [3.0, 3.1, 3.2], np.array([10, 20, 31]), model="dagpam"))
    for test in (paired_bootstrap, hierarchical_bootstrap):
        with pytest.raises(UsageError, match="scored on different test sets"):
            test([short, short], [long, long])


@pytest.mark.parametrize(("units", "drawn"), [(9, False), (10, True)])
def test_of_few_units_nothing_is_drawn(tmp_path, units, drawn):
    """Two systems that differ alike on two units had p < 0.001."""
    losses, words = np.linspace(3, 4, units), np.full(units, 10)
    system = resample(_lm(tmp_path, losses - 0.1, words, model="dagpam"))
    baseline = resample(_lm(tmp_path, losses, words))
    for test in (paired_bootstrap, hierarchical_bootstrap):
        assert (test([system] * 2, [baseline] * 2) is not None) == drawn


def test_without_scores_there_is_no_test(tmp_path):
    (record,) = store(tmp_path, make_record())
    assert resample(record) is None
    write_scores(record.folder, [{"document": 0, "words": 10, "nll": 10 * math.log(30)}])
    assert resample(record) is None  # one document cannot be resampled


def test_scores_that_are_not_those_that_were_written_are_refused(tmp_path):
    """Their sum may be right and the parts not."""
    (record,) = store(tmp_path, make_record(value=20.0, checksums={"scores.jsonl": "0" * 64}))
    write_scores(record.folder, [{"document": n, "words": 10, "nll": 10 * math.log(20)} for n in range(2)])
    for content in (None, ""):
        with pytest.raises(UsageError, match="is not the file that was written"):
            resample(record)
        (record.folder / "scores.jsonl").write_text(content or "")
    with pytest.raises(UsageError, match="is not the file that was written"):
        resample(record)
