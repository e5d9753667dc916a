"""Where in a network a mechanism stands."""

import dataclasses
from numbers import Real
from typing import Literal

from gpam.errors import UsageError

Role = Literal["encoder", "decoder", "cross"]


@dataclasses.dataclass(frozen=True)
class Site:
    """Where in a network a mechanism stands.

    ``role`` is self attention of the encoder, self attention of the decoder (causal), or cross attention; ``layer``
    counts from 0 among the ``layers`` of its stack; ``dropout`` is the attention dropout of the recipe.

    Raises:
        UsageError: a dropout that is no number from 0 to below 1.
    """

    embed_dim: int
    num_heads: int
    role: Role = "encoder"
    layer: int = 0
    layers: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.dropout, Real) or not 0 <= self.dropout < 1:
            raise UsageError(f"attention dropout: got {self.dropout!r}, wanted a number from 0 to below 1")

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads
