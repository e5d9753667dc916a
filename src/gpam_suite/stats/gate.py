"""Whether the models of an experiment are trained: of others nothing is concluded."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import Record
from gpam_suite.records.metrics import turned
from gpam_suite.stats.curves import validation
from gpam_suite.stats.rows import Row

MOST_GAIN = 0.01
"""Of the last tenth of training, in a model that is trained."""


@dataclass(frozen=True)
class Gate:
    """``trained``: yes, no, or None where something that it needs is missing; ``reasons`` has a line for each part.
    ``last_gain``: the most that the last tenth of training gained, in any seed."""

    trained: bool | None
    reasons: tuple[str, ...]
    last_gain: float | None


def last_gain(record: Record) -> float | None:
    """By how much of itself validation perplexity per token fell in the last tenth of training: ``1 - P(1) / P(0.9)``,
    ``P(0.9)`` of the last validation before that tenth. None without one, or where the end was not validated."""
    perplexities = validation(record)
    before = [update for update in perplexities if 10 * update <= 9 * record["updates"]]
    if record["updates"] not in perplexities or not before:
        return None
    return 1 - perplexities[record["updates"]] / perplexities[max(before)]


def gate(baseline: Row, references: Mapping[str, float | None]) -> Gate:
    """Whether the models of an experiment are trained: softmax beats every reference row on the same test set, the last
    tenth of its training gained less than :data:`MOST_GAIN` of the validation perplexity, and no seed of it diverged.

    ``references`` maps the name of each reference row to its headline number, None where it is not there yet.
    """
    parts: list[tuple[bool | None, str]] = []
    metric = TASKS[baseline.records[0]["task"]].headline
    mean = baseline.summary(metric).mean
    for name, score in references.items():
        if mean is None or score is None:
            parts.append((None, f"{name}: not there yet"))
        else:
            better = turned(metric, mean) > turned(metric, score)
            parts.append((better, f"{baseline.label} {mean:.2f} against {name} {score:.2f}"))
    gains = [last_gain(record) for record in baseline.finished]
    most = max(gains) if gains and None not in gains else None
    if most is None:
        parts.append((None, "the last tenth of training: not known"))
    else:
        gained = f"at most {100 * most:.2f} %" if most > 0 else f"nothing ({100 * most:.2f} %)"
        parts.append((most < MOST_GAIN, f"the last tenth of training gained {gained}"))
    if diverged := [f"{record['seed']}" for record in baseline.lost if record["status"] == "diverged"]:
        parts.append((False, f"{baseline.label} diverged with seed {', '.join(diverged)}"))
    known = [part for part, _ in parts]
    trained = False if False in known else None if None in known else True
    return Gate(trained, tuple(reason for _, reason in parts), most)
