"""Sigmoid attention (Ramapuram et al. 2024, arXiv 2409.04431).

::

    P = sigmoid(S + b), b = -ln n, masked entries zero      Y = P V,    S = Q K^T / sqrt(d_qk)

The source takes the length of the training context for ``n`` in every row. Here it is the number of keys the row sees,
the same where nothing is masked: padding changes nothing, a first token is not damped to 1/n, and decoding step by step
gives what decoding at once gives. ``sigmoid_length`` sets the source's constant. No parameters. Dropout falls on the
weights, as in the authors' simulator.
"""

import dataclasses
import math

import torch
from torch import Tensor

from gpam.attention import parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Masks
from gpam.attention.facts import Facts
from gpam.attention.options import option
from gpam.attention.registry import register


@dataclasses.dataclass(frozen=True)
class SigmoidOptions:
    sigmoid_length: int = option(
        0, "n in sigmoid(S - ln n): 0 for the visible keys of each row, or one length for all rows", minimum=0
    )


@register("sigmoid")
class Sigmoid(Mechanism):
    Options = SigmoidOptions
    counts_keys = True
    facts = Facts(
        formula="sigmoid(S - ln n) V, n = visible keys",
        source="Ramapuram et al. 2024, arXiv 2409.04431",
        row_sum="not fixed: in [0, n]",
        weight_range="[0, 1]",
        negative=False,
        departures=(
            "n is the keys that a row sees, where the source has one training length for all rows (option "
            "sigmoid_length)"
        ),
    )

    def weight_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        visible = masks.visible(q, k)
        scores = masks.scores(q, k)
        length = self.options.sigmoid_length
        log_n = math.log(length) if length else parts.visible_count(visible, scores).log()
        return torch.sigmoid(scores - log_n).masked_fill(~visible, 0)
