"""Finds where an experiment varies lambda+ and lambda-, so that the metric can be drawn against them."""

from collections.abc import Sequence
from typing import NamedTuple

from gpam_suite.stats.aggregate import LAMBDA_LABELS, changed_options
from gpam_suite.stats.rows import Row

_SYMBOLS = {"lambda_pos": r"$\lambda_+$", "lambda_neg": r"$\lambda_-$"}
_FEWEST = 3  # points of a line


class Sweep(NamedTuple):
    """Rows of one model that differ in their lambdas alone: ``lines`` maps lambda+ to them, by lambda-."""

    model: str
    lines: dict[float, list[Row]]

    @property
    def rows(self) -> list[Row]:
        return [row for line in self.lines.values() for row in line]


def symbol(option: str) -> str:
    """The paper's symbol of an option where it has one."""
    return _SYMBOLS.get(option, option)


def rows_sum(row: Row) -> float | None:
    """What each row of daGPAM's weights sums to, ``1 + lambda+ - lambda-``; None for other models, learned lambdas and
    the other reading of the formula."""
    pos, neg = (row.options.get(name) for name in LAMBDA_LABELS)
    plain = {"combination": "one_plus", "lambdas": "fixed"}
    other = any(row.options.get(name, value) != value for name, value in plain.items())
    return None if pos is None or neg is None or other else 1 + pos - neg


def find_sweeps(rows: Sequence[Row]) -> list[Sweep]:
    """A sweep for each model that was run with three or more values of lambda- beside one of lambda+."""
    found: dict[str, dict[float, list[Row]]] = {}
    for row in sorted(
        filter(_varies_lambdas_alone, rows), key=lambda row: [row.options[name] for name in LAMBDA_LABELS]
    ):
        found.setdefault(row.model, {}).setdefault(row.options["lambda_pos"], []).append(row)
    return [Sweep(model, lines) for model, lines in found.items() if max(map(len, lines.values())) >= _FEWEST]


def _varies_lambdas_alone(row: Row) -> bool:
    fixed = LAMBDA_LABELS.keys() <= row.options.keys() and row.options.get("lambdas", "fixed") == "fixed"
    return fixed and all(one.partition("=")[0] in LAMBDA_LABELS for one in changed_options(row.overrides_label))
