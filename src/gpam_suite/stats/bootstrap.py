"""How far a test-set number hangs on the test set: the paired bootstrap, from the ``scores.jsonl`` of the runs alone.

Test sets of the same size are drawn with replacement from the units (sentences, documents that are scored whole,
passages of a text, generated sequences), both systems are scored on each, and the differences give an interval and a p
value (Efron & Tibshirani 1993; Koehn, EMNLP 2004, "Statistical Significance Tests for Machine Translation Evaluation").
With several seeds a side the statistic is the difference of the means over seeds, each draw scoring all of them on the
same units.
:func:`paired_bootstrap` does not draw seeds: its interval holds for the trained systems at hand (see
:mod:`gpam_suite.stats.over_seeds` for the other question). :func:`hierarchical_bootstrap` draws both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from gpam.errors import UsageError
from gpam_suite.common.files import sha256
from gpam_suite.common.formatting import count
from gpam_suite.common.tasks import LM, RECALL, TASKS
from gpam_suite.records import archives
from gpam_suite.records.folder import Record
from gpam_suite.records.lines import SCORES, read_scores
from gpam_suite.stats.over_seeds import Difference

RESAMPLES = 1000
LEAST_UNITS = 10
"""From fewer nothing is drawn: of two units there are three test sets, and all may say the same."""

SEED = 12345
"""sacreBLEU's own default seed, so that its paired test (``--paired-bs``) draws the same test sets."""

BOTH_DRAWN = (
    "hierarchical bootstrap, each draw taking seeds with replacement and one test set for all of them; with fewer than "
    "five seeds it is too narrow"
)
_TOLERANCE = 1e-9  # between the record's number and the one its scores give, which differ in the order of a sum


@dataclass(frozen=True)
class Resampled:
    """One run's number on its test set (``score``) and on :data:`RESAMPLES` resampled ones (``samples``).

    ``statistics`` [units, 2 or 10] are those that :func:`corpus_score` takes the sums of, a row a ``unit``.
    """

    record: Record
    unit: str
    statistics: np.ndarray
    score: float
    samples: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Words, answers or reference length of each unit: what two runs on one test set share."""
        return self.statistics[:, 0 if TASKS[self.record["task"]].statistics else 1]


def corpus_score(task: str, totals: np.ndarray, *, of_a_sentence: bool = False) -> float:
    """The corpus number from summed sufficient statistics.

    Language modelling, ``totals = [words, nll]``: perplexity ``exp(nll / words)``, nll in nats. Translation, ``totals =
    [system length, reference length, matches of order 1..4, n-grams of order 1..4]``: sacreBLEU's BLEU with its default
    smoothing (Papineni et al. 2002; Post 2018). Recall, ``totals = [answers, correct]``: accuracy in percent.
    """
    if task == RECALL.name:
        return float(100 * totals[1] / totals[0])
    if task == LM.name:
        return float(np.exp(totals[1] / totals[0]))
    ints = [round(float(total)) for total in totals]
    return BLEU.compute_bleu(ints[2:6], ints[6:10], *ints[:2], smooth_method="exp", effective_order=of_a_sentence).score


def _statistics(record: Record) -> tuple[str, np.ndarray] | None:
    """What a run's test set is counted by, and units x sufficient statistics; None when it has no ``scores.jsonl``."""
    rows = read_scores(record.folder)
    if not rows:
        return None
    units, names = TASKS[record["task"]].units, TASKS[record["task"]].statistics
    unit = next((name for name in units if name in rows[0]), units[0])
    try:
        if [row[unit] for row in rows] != list(range(len(rows))):
            raise ValueError(f"'{unit}' does not count 0, 1, 2, ...")
        table = [[row[name] for name in names] if names else row["bleu"] for row in rows]
        array = np.array(table, dtype=np.float64)
        if array.shape != (len(rows), len(names) or 10) or not np.isfinite(array).all():
            raise ValueError("a row is too long, too short or holds null")
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{record.folder / SCORES} does not hold the {unit} scores this version reads ({error}): "
            "evaluate the run again, or restore the file from git."
        ) from None
    return unit, array


def checked_scores(record: Record) -> tuple[str, np.ndarray, float] | None:
    """What a run's test set is counted by, units x sufficient statistics, and the number they give; None without
    ``scores.jsonl`` or without a number.

    Raises:
        UsageError: it is not the number that the record holds, or the file is not the one that it names.
    """
    written, path = record.at("checksums", SCORES), record.folder / SCORES
    if written and sha256(archives.read_bytes(path) if archives.is_file(path) else b"") != written:
        raise UsageError(
            f"{path} is not the file that was written with its record (by its SHA-256): restore it "
            "from git, or delete the folder and run again."
        )
    found = _statistics(record)
    if found is None or record.headline is None:
        return None
    unit, statistics = found
    score = corpus_score(record["task"], statistics.sum(axis=0))
    if abs(score - record.headline) > _TOLERANCE * abs(record.headline):
        raise UsageError(
            f"{record.folder / SCORES} gives {score:.10g} but the record says {record.headline:.10g}: "
            "one of the two files is of another run; evaluate it again."
        )
    return unit, statistics, score


@lru_cache(maxsize=4)
def _counts(n: int) -> np.ndarray:
    """How often each of ``n`` units stands in each resampled test set, ``[RESAMPLES, n]``: the same for all runs."""
    draws = np.random.default_rng(SEED).choice(n, size=(RESAMPLES, n), replace=True)
    return np.stack([np.bincount(draw, minlength=n) for draw in draws]).astype(np.float64)


def resample(record: Record) -> Resampled | None:
    """A finished run's number on the test set and on resampled ones; None without ``scores.jsonl`` or with one unit.

    Raises:
        UsageError: the scores do not give the number that the record holds.
    """
    found = checked_scores(record)
    if found is None or len(found[1]) < 2:
        return None
    unit, statistics, score = found
    samples = np.array([corpus_score(record["task"], totals) for totals in _counts(len(statistics)) @ statistics])
    return Resampled(record, unit, statistics, score, samples)


def paired_bootstrap(systems: Sequence[Resampled], baselines: Sequence[Resampled]) -> Difference | None:
    """The difference ``mean(systems) - mean(baselines)`` on the test set, with percentile interval and two-sided p
    value; None with fewer than :data:`LEAST_UNITS` units.

    The p value is the two-sided one of Riezler & Maxwell (2005), with ``d`` the difference on the test set, ``d_r`` on
    resample ``r`` and ``m`` their mean: ``(1 + #{|d_r - m| >= |d|}) / (1 + RESAMPLES)``; 1 of two systems with the
    same output. sacreBLEU's draws are the same but it centres the sizes,
    ``|d_r| - mean|d_r| > |d|``, which comes to about half of this, or less where ``d_r`` changes its sign.

    Raises:
        UsageError: two runs were scored on different test sets.
    """
    drawn = np.mean([s.samples for s in systems], axis=0) - np.mean([s.samples for s in baselines], axis=0)
    units = f"{count(len(systems[0].sizes))} {systems[0].unit}s"
    return _bootstrap(systems, baselines, drawn, f"paired bootstrap over {units}, {RESAMPLES} resamples")


def hierarchical_bootstrap(systems: Sequence[Resampled], baselines: Sequence[Resampled]) -> Difference | None:
    """The same difference when both the seeds and the test set are drawn anew; None with one seed on a side or
    fewer than :data:`LEAST_UNITS` units.

    Draw ``r`` takes ``K`` of the ``K`` seeds with replacement, ``s_1 ... s_K``, and then a test set ``T_r`` of units
    with replacement, on which all of them are scored, as every seed reads the same test set:
    ``d_r = sum_k [A(s_k, T_r) - B(s_k, T_r)] / K``, with A and B the corpus numbers of the systems and the baselines.
    Seeds that both sides share are drawn together; with different seeds each side draws its own (Davison & Hinkley
    1997, section 3.8; Owen, "The pigeonhole bootstrap", 2007). The interval is the percentile one.

    The part of the variance that is due to seeds comes out too small by ``(K-1)/K`` and has no t quantile in it: with
    fewer than five seeds or so read it beside :func:`gpam_suite.stats.over_seeds.difference`, not in its place.

    Raises:
        UsageError: two runs were scored on different test sets.
    """
    if min(len(systems), len(baselines)) < 2:
        return None
    ours, theirs = (sorted(side, key=lambda run: run.record["seed"]) for side in (systems, baselines))
    seeds = [[run.record["seed"] for run in side] for side in (ours, theirs)]
    rng = np.random.default_rng([SEED, 1])  # another stream than the one that draws the units
    picks = rng.integers(len(ours), size=(len(ours), RESAMPLES))
    others = picks if seeds[0] == seeds[1] else rng.integers(len(theirs), size=(len(theirs), RESAMPLES))
    return _bootstrap(systems, baselines, _drawn_means(ours, picks) - _drawn_means(theirs, others), BOTH_DRAWN)


def _drawn_means(runs: Sequence[Resampled], picks: np.ndarray) -> np.ndarray:
    """Mean number of the runs in column r of ``picks`` on test set r."""
    return np.take_along_axis(np.array([run.samples for run in runs]), picks, axis=0).mean(axis=0)


def _refuse_other_test_set(runs: Sequence[Resampled]) -> None:
    for one, other in pairwise(runs):
        if not np.array_equal(one.sizes, other.sizes):
            raise UsageError(
                f"{one.record.folder} and {other.record.folder} were scored on different test sets (their units or "
                f"lengths in {SCORES} differ): evaluate both on the same one."
            )


def _bootstrap(
    systems: Sequence[Resampled], baselines: Sequence[Resampled], drawn: np.ndarray, method: str
) -> Difference | None:
    _refuse_other_test_set([*baselines, *systems])
    if len(systems[0].sizes) < LEAST_UNITS:
        return None
    estimate = float(np.mean([s.score for s in systems]) - np.mean([s.score for s in baselines]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    beyond = np.abs(drawn - drawn.mean()) >= abs(estimate)
    p = (1 + int(beyond.sum())) / (1 + RESAMPLES)
    return Difference(estimate, float(low), float(high), method, p)
