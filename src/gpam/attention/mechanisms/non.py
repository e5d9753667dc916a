"""NON, attention without any normalisation (Richter and Wattenhofer 2020, arXiv 2005.09561).

::

    P = S / sqrt(n), masked entries zero        S = Q K^T / sqrt(d_qk), n = visible keys of the row
    Y = GELU(P V)

In the source the concatenated heads are divided by ``sqrt(n)`` before the GELU and the output projection; dividing the
weights of a row is the same. Its Keras code takes the padded length for ``n``, its graph code the number of
neighbours: here it is the keys that the row sees, so that padding changes nothing and a causal row knows only its
past. The GELU is the exact one (its Keras code has the tanh approximation, its PyTorch code the exact one).
No options, no parameters. Rows neither have a fixed sum nor a bounded range. Dropout falls on the weights.
"""

import torch.nn.functional as F
from torch import Tensor

from gpam.attention import parts
from gpam.attention.base import Mechanism
from gpam.attention.call import Masks
from gpam.attention.facts import Facts
from gpam.attention.registry import register


@register("non")
class NON(Mechanism):
    takes_bias = False
    facts = Facts(
        formula="GELU(S V / sqrt(n)), n = visible keys",
        source="Richter and Wattenhofer 2020, arXiv 2005.09561",
        row_sum="not fixed",
        weight_range="unbounded",
        negative=True,
        departures=(
            "no layer norm around the sub-layer or in the feed-forward layer but the recipe's own, where the authors "
            "put one; n is the keys that a row sees, not the padded length; the exact GELU; dropout falls on the "
            "weights"
        ),
    )

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        visible = masks.visible(q, k)
        scores = parts.scaled_scores(q, k).masked_fill(~visible, 0)
        return scores / parts.visible_count(visible, scores) ** 0.5

    def after_heads(self, output: Tensor) -> Tensor:
        return F.gelu(output)
