"""Whether the models of an experiment are trained, from its records: who fails this has no verdict.

Softmax must beat every reference row on the same test set (a Kneser-Ney n-gram, a recurrent network of equal
parameters), and the last tenth of its training must gain less than 1 % of the validation perplexity.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record
from gpam_suite.records.metrics import turned
from gpam_suite.stats.aggregate import Row
from gpam_suite.stats.curves import validation

MOST_GAIN = 0.01


@dataclass(frozen=True)
class Gate:
    """``trained``: yes, no, or None where something that it needs is missing; ``reasons`` has a line for each part."""

    trained: bool | None
    reasons: tuple[str, ...]


def last_gain(record: Record) -> float | None:
    """By how much of itself validation perplexity per token fell in the last tenth of training: ``P(0.9) / P(1) - 1``,
    ``P(0.9)`` of the last validation before that tenth. None without one, or where the end was not validated."""
    perplexities = {update: 2**bits for update, bits in validation(record, "loss_bits").items()}
    before = [update for update in perplexities if 10 * update <= 9 * record["updates"]]
    if record["updates"] not in perplexities or not before:
        return None
    return perplexities[max(before)] / perplexities[record["updates"]] - 1


def gate(baseline: Row, references: Mapping[str, float | None]) -> Gate:
    """``references`` maps the name of each reference row to its headline number, None where it is not there yet."""
    parts: list[tuple[bool | None, str]] = []
    metric = TASKS[baseline.records[0]["task"]].headline
    mean = baseline.summary(metric).mean
    for name, score in references.items():
        if mean is None or score is None:
            parts.append((None, f"{name}: not there yet"))
        else:
            better = turned(metric, mean) > turned(metric, score)
            parts.append((better, f"{name}: {score:.2f}, {baseline.label} {mean:.2f}"))
    gains = [last_gain(record) for record in baseline.finished]
    if not gains or None in gains:
        parts.append((None, "gain of the last tenth of training: not known"))
    else:
        parts.append((max(gains) < MOST_GAIN, f"gain of the last tenth of training: at most {100 * max(gains):.2f} %"))
    known = [part for part, _ in parts]
    trained = False if False in known else None if None in known else True
    return Gate(trained, tuple(reason for _, reason in parts))
