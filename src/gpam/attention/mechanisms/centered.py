"""Centered attention (Ali et al. 2023, arXiv 2306.01610).

::

    P = A - D,   Y = P V
    A = softmax(Q K^T / sqrt(d_qk) + mask),  D = 1/n at each of the row's n visible keys

A row sums to 0 and a weight lies in ``[-1, 1]``. A row that sees one key passes nothing on: a causal model's first
position lives on its residual alone. No options, no parameters. The source's place for dropout is not known: here it
is on ``P``.
"""

from gpam.attention.facts import Facts
from gpam.attention.mechanisms.affine import AffineSoftmax
from gpam.attention.registry import register


@register("centered")
class Centered(AffineSoftmax):
    facts = Facts(
        formula="(A - D) V, D uniform",
        source="Ali et al. 2023, arXiv 2306.01610",
        row_sum="0",
        weight_range="[-1, 1]",
        negative=True,
        departures="dropout falls on the weights: the source's place for it is not known",
    )

    @property
    def factors(self) -> tuple[None, float, float]:
        return None, 1.0, -1.0
