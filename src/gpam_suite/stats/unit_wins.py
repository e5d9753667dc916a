"""Where two systems differ: wins, losses and ties by unit of the test set, by length, and the units that differ most.

A unit is a sentence or document (translation), a document (language modelling) or a sequence (recall). Its score on a
side is the mean over the side's seeds of :func:`unit_score`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.bleu import BLEU

from gpam_suite.common.tasks import LM, RECALL, TASKS
from gpam_suite.records.metrics import turned
from gpam_suite.stats.bootstrap import Resampled, corpus_score

BUCKETS = 4
_TIE = 1e-9  # scores are means over seeds, so equal ones may differ by rounding


class Bucket(NamedTuple):
    """The units of one range of lengths: B's wins, losses and ties, and the corpus number of either side on them."""

    shortest: int
    longest: int
    units: int
    wins: int
    losses: int
    ties: int
    a: float
    b: float


@dataclass(frozen=True)
class UnitWins:
    """The units' scores on either side by seed (``a``, ``b``), lengths, and ``gain``: how much better B is.

    ``gain`` [units] is the difference of the means over seeds, below zero where B is worse.
    """

    a: dict[int, np.ndarray]
    b: dict[int, np.ndarray]
    sizes: np.ndarray
    gain: np.ndarray
    buckets: tuple[Bucket, ...]

    def scores(self, unit: int) -> list[float]:
        """Mean score over seeds on A and on B."""
        return [float(np.mean([scores[unit] for scores in side.values()])) for side in (self.a, self.b)]

    def telling_seeds(self, unit: int) -> tuple[int, int]:
        """A seed of A and one of B to quote: the shared seed in which they differ most, else the first of each."""
        shared = [seed for seed in self.a if seed in self.b]
        if not shared:
            return next(iter(self.a)), next(iter(self.b))
        seed = max(shared, key=lambda seed: abs(self.a[seed][unit] - self.b[seed][unit]))
        return seed, seed

    @property
    def counts(self) -> tuple[int, int, int]:
        """B's wins, losses and ties."""
        return _counts(self.gain)

    def extremes(self, most: int) -> list[list[int]]:
        """The units where B gains most and those where it loses most, at most ``most`` of each, the largest first."""
        sides = (self.gain, -self.gain)
        return [[int(n) for n in np.argsort(-by, kind="stable")[:most] if by[n] > _TIE] for by in sides]


def unit_score(task: str, statistics: np.ndarray) -> float:
    """Score of one unit from its sufficient statistics (:func:`gpam_suite.stats.bootstrap.corpus_score`).

    Language modelling: ``nll / words`` in nats. Recall: accuracy in percent. Translation: sacreBLEU's sentence BLEU,
    its exponential smoothing, and only the orders of n-grams that the sentence is long enough for.
    """
    if task == LM.name:
        return float(statistics[1] / statistics[0])
    if task == RECALL.name:
        return corpus_score(task, statistics)
    ints = [round(float(value)) for value in statistics]
    matches, totals = ints[2:6], ints[6:10]
    return BLEU.compute_bleu(matches, totals, ints[0], ints[1], smooth_method="exp", effective_order=True).score


def unit_wins(a: Sequence[Resampled], b: Sequence[Resampled]) -> UnitWins:
    """Wins of B over A by unit; both were scored on the same test set."""
    task, sizes = a[0].record["task"], a[0].sizes
    ours, theirs = _by_seed(task, a), _by_seed(task, b)
    change = np.mean(list(theirs.values()), axis=0) - np.mean(list(ours.values()), axis=0)
    gain = turned(TASKS[task].headline, change)
    buckets = []
    for chosen in _by_length(sizes):
        wins, losses, ties = _counts(gain[chosen])
        corpus = [
            float(np.mean([corpus_score(task, run.statistics[chosen].sum(axis=0)) for run in side])) for side in (a, b)
        ]
        shortest, longest = int(sizes[chosen].min()), int(sizes[chosen].max())
        buckets.append(Bucket(shortest, longest, len(chosen), wins, losses, ties, *corpus))
    return UnitWins(ours, theirs, sizes, gain, tuple(buckets))


def _by_seed(task: str, runs: Sequence[Resampled]) -> dict[int, np.ndarray]:
    return {run.record["seed"]: np.array([unit_score(task, unit) for unit in run.statistics]) for run in runs}


def _by_length(sizes: np.ndarray) -> list[np.ndarray]:
    """Units in buckets between the quartiles of their length; equal lengths stay together."""
    bounds = np.unique(np.quantile(sizes, np.arange(1, BUCKETS + 1) / BUCKETS, method="inverted_cdf"))
    bucket = np.searchsorted(bounds, sizes)
    return [np.flatnonzero(bucket == number) for number in range(len(bounds))]


def _counts(gain: np.ndarray) -> tuple[int, int, int]:
    wins, losses = int(np.sum(gain > _TIE)), int(np.sum(gain < -_TIE))
    return wins, losses, len(gain) - wins - losses
