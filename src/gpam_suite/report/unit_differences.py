"""Where on the test set B wins and loses: counts, and the sentences, passages, documents or sequences that differ most.

A unit's score on a side is the mean of :func:`unit_score` over the seeds that are compared.
"""

from collections.abc import Sequence

import numpy as np

from gpam.errors import UsageError
from gpam_suite.common import formatting
from gpam_suite.common.sections import Section, Table
from gpam_suite.common.tasks import LM, TASKS
from gpam_suite.records import archives
from gpam_suite.records.folder import HYPOTHESES, Record
from gpam_suite.records.lines import SCORES
from gpam_suite.records.metrics import turned
from gpam_suite.stats.bootstrap import Resampled, corpus_score
from gpam_suite.stats.rows import Aggregate

MOST = 5
_TIE = 1e-9  # scores are means over seeds, so equal ones may differ by rounding


def unit_score(task: str, statistics: np.ndarray) -> float:
    """Score of one unit from its sufficient statistics (:func:`gpam_suite.stats.bootstrap.corpus_score`).

    Language modelling: ``nll / words`` in nats. Recall: accuracy in percent. Translation: sacreBLEU's sentence BLEU,
    its exponential smoothing, and only the orders of n-grams that the sentence is long enough for.
    """
    if task == LM.name:
        return float(statistics[1] / statistics[0])
    return corpus_score(task, statistics, of_a_sentence=True)


def scores(runs: Sequence[Resampled]) -> np.ndarray:
    """The units' scores, means over seeds."""
    return np.mean([[unit_score(run.record["task"], unit) for unit in run.statistics] for run in runs], axis=0)


def where(table: Aggregate) -> list[Section]:
    """B's wins and losses, and the units that differ most; nothing where a side has no scores to compare."""
    (a, b), task = table.rows, TASKS[table.task]
    if not (sides := table.both_resampled(b)):
        return []
    unit = a.resampled[0].unit
    theirs, ours = map(scores, sides)
    gain = turned(table.metric, theirs - ours)
    wins, losses = int(np.sum(gain > _TIE)), int(np.sum(gain < -_TIE))
    score, size = (words.format(unit=table.unit) for words in (task.unit_score, task.unit_size))
    won, lost, ties, every = map(formatting.count, (wins, losses, len(gain) - wins - losses, len(gain)))
    counted = f"By {unit} ({score}, mean over seeds) B wins {won}, loses {lost} and ties {ties} of {every}."
    if not wins + losses:
        return [Section("Where", [counted])]
    order = np.argsort(-gain, kind="stable")
    most = [int(index) for index in [*order[: min(MOST, wins)], *order[::-1][: min(MOST, losses)]]]
    digits = 3 if table.task == LM.name else 2
    cells = [
        [
            str(index),
            formatting.count(a.resampled[0].sizes[index]),
            *(formatting.number(side[index], digits) for side in (ours, theirs)),
            formatting.signed(theirs[index] - ours[index], digits),
        ]
        for index in most
    ]
    largest = Table([unit.capitalize(), size.capitalize(), f"A: {score}", f"B: {score}", "Difference"], cells)
    numbered = f"Numbered from 0, as in {SCORES}: where B gains most, then where it loses most."
    quoted = _quotations([row.finished[0] for row in table.rows], most, len(gain)) if unit == "sentence" else []
    return [Section("Where", [counted]), Section("Where they differ most", [numbered, largest, *quoted])]


def _quotations(records: Sequence[Record], sentences: Sequence[int], count: int) -> list[str]:
    """What a seed of either side wrote, where both folders hold it."""
    paths = [record.folder / HYPOTHESES for record in records]
    if not all(map(archives.is_file, paths)):
        return []
    written = [archives.read_bytes(path).decode(errors="replace").split("\n")[:-1] for path in paths]
    for path, lines in zip(paths, written, strict=True):
        if len(lines) != count:
            raise UsageError(
                f"{path} has {len(lines)} lines but the test set {count} sentences: restore it from git, or evaluate "
                "the run again."
            )
    sides = [(name, record["seed"], lines) for name, record, lines in zip("AB", records, written, strict=True)]
    return [
        "\n".join([f"sentence {index}", *(f"  {name}, seed {seed}: {lines[index]}" for name, seed, lines in sides)])
        for index in sentences
    ]
