"""Questions 3, 6 and 14: where trainable lambdas go, which fixed ones are good, and what the rows' sum does alone."""

from statistics import fmean
from typing import NamedTuple

from gpam_suite import formatting
from gpam_suite.aggregate import FIXED, LAMBDA_LABELS, TRAINABLE, Aggregate, Row
from gpam_suite.answers.answer import MISSING, NO, OPEN, YES, Answer, Finding, all_of, at_least, told
from gpam_suite.answers.plan import GRID_POINTS, LAMBDAS, MAIN, ROW_SUM, of_one_sum
from gpam_suite.answers.runs import Runs, compared, diverged, ended, lost_seeds, missing
from gpam_suite.metrics import turned

_BEHIND = 0.1  # of softmax's mean score
_GOOD, _NOTHING = "good", "nothing"


def trainable(runs: Runs) -> list[Answer]:
    """3: better than fixed ones everywhere, and moved the same way in every seed."""
    findings = [compared(runs, name, TRAINABLE, FIXED) for name in MAIN]
    known = [found for found in findings if found.verdict != MISSING]
    moves = {found.experiment: _moves(runs.row(found.experiment, TRAINABLE)) for found in known}
    directions = {tuple(move.up for move in seed) for seeds in moves.values() for seed in seeds}
    answer = NO if len(directions) > 1 else all_of([found.verdict for found in findings])
    if answer == YES and not directions:  # no record says where they went
        answer = OPEN
    said = {found.experiment: _phrase(runs, found, moves[found.experiment]) for found in known}
    findings = [found._replace(phrase=said.get(found.experiment, found.phrase)) for found in findings]
    return [Answer(3, answer, told(findings))]


class _Move(NamedTuple):
    """Where a lambda of one seed started, and where it ended in each module."""

    name: str
    start: float
    ends: list[float]

    @property
    def mean(self) -> float:
        return fmean(self.ends)

    @property
    def up(self) -> bool:
        return self.mean > self.start


def _moves(row: Row) -> list[list[_Move]]:
    """For each finished seed, each lambda's move."""
    return [
        [
            _Move(name, record["options"][name], [end for key, end in learned.items() if key.startswith(f"{name}/")])
            for name in LAMBDA_LABELS
        ]
        for record in row.finished
        if (learned := record.data.get("learned_scalars"))
    ]


def _phrase(runs: Runs, against_fixed: Finding, moves: list[list[_Move]]) -> str:
    against_softmax = compared(runs, against_fixed.experiment, TRAINABLE)
    parts = [f"trainable less fixed {against_fixed.phrase}", f"less softmax {against_softmax.phrase}"]
    for seeds in zip(*moves, strict=True):
        means, ends = [seed.mean for seed in seeds], [end for seed in seeds for end in seed.ends]
        parts.append(
            f"{LAMBDA_LABELS[seeds[0].name]} from {seeds[0].start:g} to {_span(means)} (mean over modules; single "
            f"modules {_span(ends)})"
        )
    if moves:
        start = 1 + moves[0][0].start - moves[0][1].start
        parts.append(f"so the rows' sum went from {start:g} to {_sums(moves)}")
    return "; ".join(parts)


def learned_sums(row: Row) -> str | None:
    """What the rows of weights came to sum to (mean over modules): the span over seeds; None where no record says."""
    moves = _moves(row)
    return _sums(moves) if moves else None


def _sums(moves: list[list[_Move]]) -> str:
    return _span([1 + pos.mean - neg.mean for pos, neg in moves])


def _span(values: list[float]) -> str:
    return f"{formatting.number(min(values))} … {formatting.number(max(values))}"


# ---------------------------------------------------------------------------------------------------------------- grid


def grid(runs: Runs) -> list[Answer]:
    """6: neighbouring points that beat softmax's best seed by more than its seeds' range; those that fall behind or are
    lost."""
    findings = [_region(runs, name) for name in LAMBDAS]
    return [Answer(6, at_least([found.verdict for found in findings], 1, _GOOD), told(findings))]


def _region(runs: Runs, experiment: str) -> Finding:
    aggregate = runs.experiment(experiment)
    points = [row for row in aggregate.rows if row.model == FIXED and ended(row)] if aggregate else []
    if len(points) < GRID_POINTS or not runs.complete(experiment):
        return missing(runs, experiment)
    own = [turned(aggregate.metric, value) for value in aggregate.baseline.values(aggregate.metric).values()]
    limit = float("inf") if diverged(aggregate.baseline) else 2 * max(own) - min(own)
    lost = [row for row in points if not row.finished]
    good = [row for row in points if row.finished and aggregate.goodness(row) > limit]
    behind = [row for row in points if row.finished and _behind(aggregate, row) > _BEHIND]
    phrase = (
        f"of {formatting.plural(len(points), 'point')} (lambda+, lambda-), one seed each, {len(good)} better than "
        f"softmax's best seed by more than its seeds' range{_listed(good)}, {len(behind)} more than "
        f"{100 * _BEHIND:.0f} % behind{_listed(behind)}, {len(lost)} diverged{_listed(lost)}"
        f"{_without_lambdas(aggregate, points)}{lost_seeds(aggregate.baseline)}"
    )
    return Finding(experiment, _GOOD if _neighbours(points, good) else _NOTHING, phrase)


def _without_lambdas(aggregate: Aggregate, points: list[Row]) -> str:
    """How far the point that is softmax by its formula lies from softmax's same seed: what chance alone does."""
    found = next((aggregate.difference(row) for row in points if _point(row) == (0, 0)), None)
    if found is None:
        return ""
    far = formatting.signed(found.estimate, aggregate.digits)
    return f"; (0, 0), which is softmax by its formula, lies {far} {aggregate.quantity} from softmax of the same seed"


def _behind(aggregate: Aggregate, row: Row) -> float:
    """How far the row is behind softmax's mean, as a share of it."""
    goal = aggregate.goodness(aggregate.baseline)
    return 0.0 if goal is None else (goal - aggregate.goodness(row)) / abs(goal)


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


# ------------------------------------------------------------------------------------------------------------- the sum


def row_sum(runs: Runs) -> list[Answer]:
    """14: better than softmax whose rows have the same sum, in two experiments or more."""
    findings = [_at_one_sum(runs, name) for name in ROW_SUM]
    return [Answer(14, at_least([found.verdict for found in findings], 2), told(findings))]


def _at_one_sum(runs: Runs, experiment: str) -> Finding:
    """The verdict is on daGPAM against scaled softmax; how far each is from softmax is told beside it."""
    scaled, same_sum = of_one_sum()
    found = compared(runs, experiment, same_sum, scaled)
    if found.verdict == MISSING:
        return found
    label = {model: runs.row(experiment, model).label for model in (scaled, same_sum)}
    phrases = [f"{label[same_sum]} less {label[scaled]} {found.phrase}"]
    phrases += [f"{label[model]} less softmax {compared(runs, experiment, model).phrase}" for model in label]
    return found._replace(phrase="; ".join(phrases))
