"""An answer, and the rules by which comparisons become one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpam_suite import formatting

YES, NO, OPEN = "yes", "no", "open"
BETTER, WORSE, UNDECIDED, MISSING = "better", "worse", "undecided", "not there yet"


class Answer(NamedTuple):
    """The answer (:data:`YES`, :data:`NO`, or :data:`OPEN` while the runs do not decide) to a question of the plan, and
    the evidence for it: a phrase for each experiment."""

    number: int
    answer: str
    evidence: list[str]


class Finding(NamedTuple):
    """What one experiment says: a ``verdict`` (:data:`BETTER`, :data:`WORSE`, :data:`UNDECIDED` where neither is shown,
    :data:`MISSING`) and its numbers in a phrase; of what is missing, how much is there."""

    experiment: str
    verdict: str
    phrase: str


def told(findings: Iterable[Finding]) -> list[str]:
    """A line for each experiment, with a link to its section, then one for what is missing."""
    known: dict[str, list[str]] = {}
    lacking = []
    for found in findings:
        if found.verdict == MISSING:
            lacking.append(f"{found.experiment} ({found.phrase})" if found.phrase else found.experiment)
        else:
            known.setdefault(found.experiment, []).append(found.phrase)
    lines = [f"[{name}](#{name}): {'; '.join(dict.fromkeys(phrases))}" for name, phrases in known.items()]
    return [*lines, f"{MISSING}: {formatting.listed(lacking)}"] if lacking else lines


def all_of(verdicts: Sequence[str], wanted: str = BETTER) -> str:
    """Yes where every verdict is the ``wanted`` one; no as soon as another is known; open until then."""
    return at_least(verdicts, len(verdicts), wanted)


def at_least(verdicts: Sequence[str], least: int, wanted: str = BETTER) -> str:
    """Yes where ``least`` of the verdicts are the ``wanted`` one; no when they can no longer be; open of none."""
    reached, missing = verdicts.count(wanted), verdicts.count(MISSING)
    if not verdicts:
        return OPEN
    if reached + missing < least:
        return NO
    return YES if reached >= least else OPEN


def any_of(answers: Sequence[str]) -> str:
    """Yes as soon as one answer is; no where all are; open until then."""
    if YES in answers:
        return YES
    return NO if answers and set(answers) == {NO} else OPEN
