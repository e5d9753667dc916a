"""Questions 3 and 6: where trainable lambdas go, which fixed ones are good, and where it breaks."""

from gpam_suite import formatting
from gpam_suite.aggregate import BASELINE, Aggregate, Row
from gpam_suite.answers.answer import MISSING, NO, Answer, Finding, all_of, any_of, told
from gpam_suite.answers.plan import GRID_POINTS, LAMBDAS, MAIN
from gpam_suite.answers.runs import FIXED, TRAINABLE, Runs, compared, missing, turned
from gpam_suite.records import Record
from gpam_suite.statistics import summarise

_NAMES = {"lambda_pos": "lambda+", "lambda_neg": "lambda-"}
_BEHIND = 0.1  # of softmax's mean score
_GOOD, _NOTHING = "good", "nothing"


def trainable(runs: Runs) -> list[Answer]:
    """3: better than fixed ones everywhere, and moved the same way in every seed."""
    findings = [compared(runs, name, TRAINABLE, FIXED) for name in MAIN]
    moves = {found.experiment: _moves(runs.row(found.experiment, TRAINABLE)) for found in findings}
    directions = {_signs(ends) for own in moves.values() for ends in own}
    answer = NO if len(directions) > 1 else all_of([found.verdict for found in findings])
    said = [
        found if found.verdict == MISSING else found._replace(phrase=_phrase(runs, found, moves[found.experiment]))
        for found in findings
    ]
    return [Answer(3, answer, told(said))]


Ends = dict[str, tuple[float, float]]


def _moves(row: Row | None) -> list[Ends]:
    """For each seed, the start and the mean over modules after training of each lambda."""
    return [_start_and_end(record) for record in (row.finished if row else ()) if record.data.get("learned_scalars")]


def _start_and_end(record: Record) -> Ends:
    learned = record["learned_scalars"]
    ends = {name: [value for key, value in learned.items() if key.startswith(f"{name}/")] for name in _NAMES}
    return {name: (record["options"][name], summarise(own).mean) for name, own in ends.items() if own}


def _signs(ends: Ends) -> tuple[bool, ...]:
    return tuple(end > start for start, end in ends.values())


def _phrase(runs: Runs, against_fixed: Finding, moves: list[Ends]) -> str:
    against_softmax = compared(runs, against_fixed.experiment, TRAINABLE)
    parts = [f"trainable less fixed {against_fixed.phrase}"]
    if against_softmax.verdict != MISSING:
        parts.append(f"less softmax {against_softmax.phrase}")
    for name in moves[0] if moves else ():
        start, ends = moves[0][name][0], sorted(own[name][1] for own in moves)
        parts.append(f"{_NAMES[name]} from {start:g} to {formatting.number(ends[0])} … {formatting.number(ends[-1])}")
    return "; ".join(parts)


# ---------------------------------------------------------------------------------------------------------------- grid


def grid(runs: Runs) -> list[Answer]:
    """6: neighbouring points that beat softmax's best seed by more than its seeds' range; those that fall behind or are
    lost."""
    findings = [_region(runs, name) for name in LAMBDAS]
    return [Answer(6, any_of([all_of([found.verdict], _GOOD) for found in findings]), told(findings))]


def _region(runs: Runs, experiment: str) -> Finding:
    aggregate = runs.experiment(experiment)
    points = [row for row in aggregate.rows if row.model == FIXED] if aggregate else []
    if len(points) < GRID_POINTS or not runs.complete(experiment, BASELINE):
        return missing(experiment)
    own = [turned(aggregate, value) for value in aggregate.baseline.values(aggregate.metric).values()]
    limit = 2 * max(own) - min(own) if own else -float("inf")
    lost = [row for row in points if not row.finished]
    good = [row for row in points if row.finished and _turned(aggregate, row) > limit]
    behind = [row for row in points if row.finished and _behind(aggregate, row) > _BEHIND]
    phrase = (
        f"of {formatting.plural(len(points), 'point')}, one seed each, {len(good)} better than softmax's best seed by "
        f"more than its seeds' range{_listed(good)}, {len(behind)} more than {100 * _BEHIND:.0f} % behind"
        f"{_listed(behind)}, {len(lost)} diverged or failed{_listed(lost)}"
    )
    return Finding(experiment, _GOOD if _neighbours(points, good) else _NOTHING, phrase)


def _turned(aggregate: Aggregate, row: Row) -> float:
    return turned(aggregate, row.summary(aggregate.metric).mean)


def _behind(aggregate: Aggregate, row: Row) -> float:
    """How far the row is behind softmax's mean, as a share of it."""
    mean = aggregate.baseline.summary(aggregate.metric).mean
    return 0.0 if mean is None else (turned(aggregate, mean) - _turned(aggregate, row)) / abs(mean)


def _point(row: Row) -> tuple[float, float]:
    return row.options["lambda_pos"], row.options["lambda_neg"]


def _neighbours(points: list[Row], good: list[Row]) -> bool:
    """Whether two of the ``good`` points are neighbours on the grid: a region, not a point."""
    axes = [sorted({_point(row)[axis] for row in points}) for axis in (0, 1)]
    places = [tuple(axis.index(value) for axis, value in zip(axes, _point(row), strict=True)) for row in good]
    return any(abs(a - c) + abs(b - d) == 1 for a, b in places for c, d in places)


def _listed(rows: list[Row]) -> str:
    points = ", ".join(f"({pos:g}, {neg:g})" for pos, neg in sorted(map(_point, rows)))
    return f" ({points})" if points else ""
