"""Which models a figure shows where it cannot show all of them, and how each looks."""

from collections.abc import Sequence
from itertools import count
from typing import Any, TypeVar

from gpam_suite.report.plotting import COLOURS, look
from gpam_suite.stats.aggregate import FIXED, TRAINABLE
from gpam_suite.stats.rows import BASELINE, Aggregate, Row

APART = len(COLOURS)
"""More models than this in one panel cannot be told apart."""
SELECTED = "selected: softmax and daGPAM, then the best and the worst of the others by their score"
MODELS = (
    BASELINE,
    FIXED,
    TRAINABLE,
    "softmax_scaled",
    "dagpam_trainable_sum_one",
    "dagpam_trainable_convex_identity",
)
"""These have one look in all figures: the main comparison (the first three), and what is to be seen beside it."""
Item = TypeVar("Item", bound=tuple[Any, ...])


def selected(aggregate: Aggregate, items: Sequence[Item]) -> list[Item]:
    """At most :data:`APART` of the items, which start with a row, in their order: softmax and daGPAM with default
    options, then of the others the best and the worst by the headline metric."""
    rows = [item[0] for item in items]
    first = [row for row in rows if _is_one_of(MODELS[:3], row)]
    others = sorted((row for row in rows if row not in first), key=aggregate.goodness)
    left = min(APART, len(rows)) - len(first)
    kept = {*first, *others[: left // 2], *others[len(others) - (left - left // 2) :]}
    return [item for item in items if item[0] in kept]


def look_of_model(model: str) -> dict[str, Any]:
    """Colour, line and marker of one of :data:`MODELS`."""
    return look(MODELS.index(model))


def look_of(aggregate: Aggregate, row: Row) -> dict[str, Any]:
    """Colour, line and marker of a row: with default options one of :data:`MODELS` looks the same in all figures; the
    others of an experiment have what is left, first those that :func:`selected` shows."""
    if _is_one_of(MODELS, row):
        return look_of_model(row.model)
    shown = [other for (other,) in selected(aggregate, [(other,) for other in aggregate.rows if other.finished])]
    rows = [*shown, *(other for other in aggregate.rows if other not in shown)]
    taken = {MODELS.index(other.model) for other in rows if _is_one_of(MODELS, other)}
    free = (place for place in count() if place not in taken)
    return look(dict(zip((other for other in rows if not _is_one_of(MODELS, other)), free, strict=False))[row])


def _is_one_of(models: Sequence[str], row: Row) -> bool:
    return row.model in models and row.has_default_options
