"""What the suite's daGPAM, and its preparation of data, are meant to cost at most, and what the records say."""

from dataclasses import dataclass
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Goal:
    """The median ratio of ``quantity`` (a field of a record's rows) of ``of`` to ``to`` in a case, at most ``most``.

    ``quantity_of_to``: the other contender's field, where it is another one.
    """

    case: str
    to: str
    most: float
    quantity: str = "seconds"
    of: str = "dagpam"
    quantity_of_to: str | None = None

    def measured(self, found: dict[str, Any]) -> float | None:
        """None where the record is of another case or one of the two contenders is missing."""
        rows = {row["contender"]: row for row in found["rows"]}
        ours = rows.get(self.of, {}).get(self.quantity)
        theirs = rows.get(self.to, {}).get(self.quantity_of_to or self.quantity)
        if found["case"] != self.case or not ours or not theirs:
            return None
        if isinstance(ours, list):
            return median(mine / other for mine, other in zip(ours, theirs, strict=True))
        return ours / theirs


GOALS = (
    Goal("core_causal_512", "softmax-sdpa", 1.05),
    Goal("core_causal_512", "softmax-tiled", 1.65),
    Goal("core_causal_2048", "softmax-sdpa", 1.55),
    Goal("core_causal_4096", "softmax-sdpa", 1.75),
    Goal("core_causal_4096", "softmax-tiled", 1.65),
    Goal("core_causal_4096", "softmax-sdpa", 2.1, "peak_bytes"),
    Goal("core_causal_4096", "dagpam-naive", 0.03, "peak_bytes"),
    Goal("core_nmt_encoder", "softmax-sdpa", 1.20),
    Goal("step_lm_512_12layers", "stock", 1.04),
    Goal("step_lm_512_12layers", "softmax", 1.04),
    Goal("step_lm_512_dropout", "stock", 1.00),
    Goal("step_nmt_iwslt_lengths", "stock", 1.06),
    Goal("step_nmt_iwslt_lengths", "softmax", 1.06),
    Goal("step_ptb", "stock", 0.741, of="softmax"),  # 1.35 times the speed: an Intel; an AMD: 2.2 times
    Goal("step_ptb", "stock", 0.8, "peak_bytes", of="softmax"),
    Goal("step_ptb", "softmax", 1.10),
    Goal("step_ptb", "softmax", 1.2, "peak_bytes"),
    *(Goal(f"train_{task}", "stock", 0.625, of="softmax") for task in ("lm_laptop", "nmt_laptop", "multi30k")),
    Goal("train_iwslt", "stock", 1.0, of="softmax"),
    Goal("decode_nmt", "stock", 1.08),
    Goal("decode_nmt", "stock", 1.00, "cache_bytes"),
    Goal("prepare_multi30k", "libraries", 0.588, of="suite"),  # 1.7 times the speed
    Goal("prepare_multi30k", "suite", 1.10, "larger_peak_bytes", of="suite", quantity_of_to="peak_bytes"),
)
