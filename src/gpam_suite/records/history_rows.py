"""Two kinds of rows in ``metrics.jsonl``, from ``gpam_fairseq.trainer.histories``, and reading them back:

- ``split: gradient``: ``<map>/<module>`` to ``||dL/dW||_F`` before clipping, for the query, key and value projections
  and the mechanism's own matrices (``query_neg``); L is the training loss in nats a token;
- ``split: scalar``: ``<name>/<module>`` (``.../<head>`` where there is one a head) to the value of each parameter of
  the mechanism that has at most one number a head: learned lambdas.
"""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

GRADIENT, SCALAR = "gradient", "scalar"


def of_split(history: list[dict[str, Any]], split: str) -> dict[str, dict[int, float]]:
    """Name to update to value, from the rows of ``split``; of two rows of one update (a resumed run) the later one."""
    found: dict[str, dict[int, float]] = {}
    for row in history:
        if row.get("split") == split:
            for name, value in row.items():
                if "/" in name and value is not None:
                    found.setdefault(name, {})[row["update"]] = value
    return found


def gradients_and_scalars(history: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For the record: each gradient norm's median over the history, and each learned scalar's last value."""
    gradients, scalars = of_split(history, GRADIENT), of_split(history, SCALAR)
    return {
        "gradient_norms": {name: statistics.median(values.values()) for name, values in gradients.items()},
        "learned_scalars": {name: values[max(values)] for name, values in scalars.items()},
    }


def best_validation(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Of validations that of the checkpoint called best: of the least loss, which fairseq rounds to three decimals, of
    equals the later; of two rows of one update (a resumed run) the later one. None where no loss is known."""
    known = {row["update"]: row for row in rows if row.get("loss_bits") is not None}
    return min(known.values(), key=lambda row: (row["loss_bits"], -row["update"]), default=None)


def mean_of(values: Mapping[str, float | None] | None, kind: str) -> float | None:
    """Mean over modules of the numbers ``kind/<module>``; None where there are none."""
    found = [value for name, value in (values or {}).items() if name.startswith(f"{kind}/") and value is not None]
    return statistics.fmean(found) if found else None
