"""Which models a figure shows where it cannot show all of them, and how each looks."""

from collections.abc import Sequence
from itertools import count
from typing import Any, TypeVar

from gpam_suite.report.plotting import COLOURS, look
from gpam_suite.stats.aggregate import BASELINE, DEFAULT_OPTIONS, FIXED, TRAINABLE, Aggregate, Row

APART = len(COLOURS)
"""More models than this in one panel cannot be told apart."""
SELECTED = "selected: softmax and daGPAM, then the best and the worst of the others by their score"
_FIRST = (BASELINE, FIXED, TRAINABLE)
Item = TypeVar("Item", bound=tuple[Any, ...])


def selected(aggregate: Aggregate, items: Sequence[Item], most: int = APART) -> list[Item]:
    """At most ``most`` of the items, which start with a row, in their order: softmax and daGPAM with default options,
    then of the others the best and the worst by the headline metric."""
    if len(items) <= most:
        return list(items)
    places = range(len(items))
    first = [place for place in places if _is_first(items[place][0])][:most]
    others = sorted(
        (place for place in places if place not in first), key=lambda place: _score(aggregate, items[place][0])
    )
    left = most - len(first)
    worst, best = others[: left // 2], others[len(others) - (left - left // 2) :]
    return [items[place] for place in sorted([*first, *worst, *best])]


MODELS = (BASELINE, FIXED, TRAINABLE, "softmax_half", "dagpam_half_sum", "softmax_scaled")
"""These have one look in all figures: the main comparison, and what is to be seen beside it."""


def look_of_model(model: str) -> dict[str, Any]:
    """Colour, line and marker of one of :data:`MODELS`."""
    return look(MODELS.index(model))


def look_of(aggregate: Aggregate, row: Row) -> dict[str, Any]:
    """Colour, line and marker of a row: with default options one of :data:`MODELS` looks the same in all figures; the
    others of an experiment have what is left, first those that :func:`selected` shows."""
    shown = [other for (other,) in selected(aggregate, [(other,) for other in aggregate.rows if other.finished])]
    rows = [*shown, *(other for other in aggregate.rows if other not in shown)]
    places = {other: MODELS.index(other.model) for other in rows if _has_its_own(other)}
    free = (place for place in count() if place not in set(places.values()))
    others = [other for other in rows if other not in places]
    return look((places | dict(zip(others, free, strict=False)))[row])


def _has_its_own(row: Row) -> bool:
    return row.model in MODELS and row.overrides_label == DEFAULT_OPTIONS


def _is_first(row: Row) -> bool:
    return row.model in _FIRST and row.overrides_label == DEFAULT_OPTIONS


def _score(aggregate: Aggregate, row: Row) -> float:
    found = aggregate.goodness(row)
    return -float("inf") if found is None else found
