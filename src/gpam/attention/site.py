"""Where in a network a mechanism stands."""

import dataclasses
from typing import Literal

Role = Literal["encoder", "decoder", "cross"]


@dataclasses.dataclass(frozen=True)
class Site:
    """Where in a network a mechanism stands.

    ``role`` is self attention of the encoder, self attention of the decoder (causal), or cross attention; ``layer``
    counts from 0 among the ``layers`` of its stack; ``dropout`` is the attention dropout of the recipe.
    """

    embed_dim: int
    num_heads: int
    role: Role = "encoder"
    layer: int = 0
    layers: int = 1
    dropout: float = 0.0

    @property
    def head_dim(self) -> int:
        return self.embed_dim // self.num_heads
