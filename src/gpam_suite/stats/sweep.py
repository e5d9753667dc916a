"""Finds out which option an experiment varies, so that the metric can be drawn against it."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpam_suite.stats.aggregate import Row

_FIRST_CHOICE = ("lambda_neg", "lambda_pos")
_SYMBOLS = {"lambda_pos": r"$\lambda_+$", "lambda_neg": r"$\lambda_-$"}


@dataclass(frozen=True)
class Sweep:
    """Rows of one model along ``option``: ``lines`` maps what else was varied ("" if nothing) to (value, row) by value.

    ``tied`` names the options that had one common value in every row (lambda_pos = lambda_neg), else it is empty.
    """

    model: str
    model_label: str
    option: str
    tied: tuple[str, ...]
    lines: dict[str, list[tuple[float, Row]]]


def symbol(option: str) -> str:
    """The paper's symbol of an option where it has one."""
    return _SYMBOLS.get(option, option)


def rows_sum(row: Row) -> float | None:
    """What each row of daGPAM's weights sums to, ``1 + lambda+ - lambda-``; None for other models, learned lambdas and
    the other reading of the formula."""
    pos, neg = (row.options.get(name) for name in ("lambda_pos", "lambda_neg"))
    plain = {"combination": "one_plus", "lambdas": "fixed"}
    other = any(row.options.get(name, value) != value for name, value in plain.items())
    return None if pos is None or neg is None or other else 1 + pos - neg


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(value: object) -> str:
    return f"{value:g}" if _is_number(value) else str(value)


def find_sweeps(rows: Sequence[Row]) -> list[Sweep]:
    """A sweep for each model that was run with three or more values of a numeric option.

    ``lambda_neg`` is preferred for the horizontal axis, then ``lambda_pos``, then the option with the most values.
    Every other option that varies makes lines of its own.
    """
    models: dict[str, list[Row]] = {}
    for row in rows:
        models.setdefault(row.model, []).append(row)
    return [sweep for model, own in models.items() if (sweep := _sweep(model, own))]


def _sweep(model: str, rows: list[Row]) -> Sweep | None:
    shared = [key for key in sorted(rows[0].options) if all(key in row.options for row in rows)]
    varied = [key for key in shared if any(row.options[key] != rows[0].options[key] for row in rows)]
    steps = {
        key: len({row.options[key] for row in rows}) for key in varied if all(_is_number(r.options[key]) for r in rows)
    }
    axes = [key for key, n in steps.items() if n >= 3]
    if not axes:
        return None
    option = next((key for key in _FIRST_CHOICE if key in axes), max(axes, key=lambda key: steps[key]))
    tied = tuple(key for key in steps if all(row.options[key] == row.options[option] for row in rows))
    others = [key for key in varied if key != option and key not in tied]
    lines: dict[str, list[tuple[float, Row]]] = {}
    for row in sorted(rows, key=lambda row: tuple(str(row.options[key]) for key in others)):
        label = ", ".join(f"{symbol(key)} = {_value(row.options[key])}" for key in others)
        lines.setdefault(label, []).append((row.options[option], row))
    for points in lines.values():
        points.sort(key=lambda point: point[0])
    return Sweep(model, rows[0].records[0]["model_label"], option, tied if len(tied) > 1 else (), lines)
