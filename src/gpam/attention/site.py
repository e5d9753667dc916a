"""Where in a network a mechanism stands."""

import dataclasses
from numbers import Integral, Real
from typing import Literal, get_args

from gpam.errors import UsageError

Role = Literal["encoder", "decoder", "cross"]


@dataclasses.dataclass(frozen=True)
class Site:
    """Where in a network a mechanism stands.

    ``role`` is self attention of the encoder, self attention of the decoder (causal), or cross attention; ``layer``
    counts from 0 among the ``layers`` of its stack; ``dropout`` is the attention dropout of the recipe.

    Raises:
        UsageError: no mechanism could stand there.
    """

    embed_dim: int
    num_heads: int
    role: Role = "encoder"
    layer: int = 0
    layers: int = 1
    dropout: float = 0.0

    def __post_init__(self) -> None:
        whole = all(isinstance(number, Integral) for number in (self.num_heads, self.embed_dim))
        if not whole or self.num_heads < 1 or self.embed_dim < 1 or self.embed_dim % self.num_heads:
            raise UsageError(
                f"got {self.num_heads!r} attention heads for a width of {self.embed_dim!r}, wanted a whole number that "
                "divides it"
            )
        if self.role not in get_args(Role):
            raise UsageError(f"role: got {self.role!r}, wanted one of {', '.join(get_args(Role))}")
        whole = all(isinstance(number, Integral) for number in (self.layer, self.layers))
        if not whole or not 0 <= self.layer < self.layers:
            raise UsageError(
                f"got layer {self.layer} of {self.layers} layers, wanted one from 0 to below their number; layers= "
                "says how many"
            )
        if not isinstance(self.dropout, Real) or not 0 <= self.dropout < 1:
            raise UsageError(f"attention dropout: got {self.dropout!r}, wanted a number from 0 to below 1")

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads
