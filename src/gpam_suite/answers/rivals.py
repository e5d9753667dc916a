"""Questions 4, 5 and 10: models of one seed against the range of daGPAM's seeds.

One seed says little: a model that is daGPAM's equal lies outside the range of its three seeds half of the time. So a
model counts only where it does the same in every experiment.
"""

from collections.abc import Callable, Sequence

from gpam_suite import formatting
from gpam_suite.aggregate import FIXED, Aggregate, Row
from gpam_suite.answers.answer import BETTER, MISSING, UNDECIDED, WORSE, Answer, Finding, all_of, any_of, told
from gpam_suite.answers.plan import MAIN, models
from gpam_suite.answers.runs import Runs, diverged, ended, missing
from gpam_suite.metrics import turned

_INSIDE = "inside"
_AS_GOOD, _LESS = "as good", "less"
_LOST = -float("inf")


def rivals(runs: Runs) -> list[Answer]:
    """4: softmax's controls and 5: other mechanisms, inside the range or better; 10: daGPAM's ablations, outside it."""
    return [
        _everywhere(4, runs, models("controls"), (_AS_GOOD,), _as_good),
        _everywhere(5, runs, models("alternatives"), (_AS_GOOD,), _as_good),
        _everywhere(10, runs, models("ablations"), (BETTER, WORSE), lambda place: place),
    ]


def _as_good(place: str) -> str:
    return _LESS if place == WORSE else _AS_GOOD


def _everywhere(
    number: int, runs: Runs, names: Sequence[str], wanted: Sequence[str], read: Callable[[str], str]
) -> Answer:
    """Yes where one of the models has one of the ``wanted`` verdicts in every experiment."""
    places = {experiment: _places(runs, experiment, names) for experiment in MAIN}
    verdicts = [[read(own[name]) if own[name] != MISSING else MISSING for own in places.values()] for name in names]
    findings = [_finding(runs, experiment, own, wanted, read) for experiment, own in places.items()]
    return Answer(number, any_of([all_of(own, word) for own in verdicts for word in wanted]), told(findings))


def _places(runs: Runs, experiment: str, names: Sequence[str]) -> dict[str, str]:
    """Model to where it lies: better or worse than the range of daGPAM's seeds (lost: worse), inside it, or missing."""
    rows = {name: runs.row(experiment, name) for name in names}
    if not runs.complete(experiment, FIXED):
        return dict.fromkeys(names, MISSING)
    low, high = _range(runs, experiment)
    return {
        name: _place(runs, experiment, row, low, high) if row is not None and ended(row) else MISSING
        for name, row in rows.items()
    }


def _place(runs: Runs, experiment: str, row: Row, low: float, high: float) -> str:
    score = runs.experiment(experiment).goodness(row)
    value = _LOST if score is None else score
    return BETTER if value > high else WORSE if value < low else _INSIDE


def _range(runs: Runs, experiment: str) -> tuple[float, float]:
    """Worst and best of daGPAM's seeds, turned; nothing is worse than one that diverged."""
    aggregate, row = runs.experiment(experiment), runs.row(experiment, FIXED)
    own = [turned(aggregate.metric, value) for value in row.values(aggregate.metric).values()]
    own += [_LOST] * diverged(row)
    return min(own), max(own)


def _finding(
    runs: Runs, experiment: str, places: dict[str, str], wanted: Sequence[str], read: Callable[[str], str]
) -> Finding:
    known = {name: read(place) for name, place in places.items() if place != MISSING}
    if not known:
        return missing(runs, experiment)
    aggregate, low_high = runs.experiment(experiment), _range(runs, experiment)
    passed = [runs.row(experiment, name) for name, place in known.items() if place in wanted]
    listed = "; ".join(f"{row.label} {_score(aggregate, row.summary(aggregate.metric).mean)}" for row in passed)
    worst, best = (_score(aggregate, None if value == _LOST else abs(value)) for value in low_high)
    seeds = f"{worst} (worst) to {best}"
    word = " or ".join(wanted)
    phrase = f"{word}: {len(passed)} of {len(known)}{f' ({listed})' if listed else ''}, daGPAM's seeds {seeds}"
    if read(_place(runs, experiment, aggregate.baseline, *low_high)) == _AS_GOOD:
        phrase += (
            f", softmax itself {_score(aggregate, aggregate.baseline.summary(aggregate.metric).mean)}: as good too"
        )
    return Finding(experiment, UNDECIDED, phrase)


def _score(aggregate: Aggregate, value: float | None) -> str:
    return "diverged" if value is None else formatting.number(value, aggregate.digits)
