"""What a mechanism is: the part of multi-head attention between the projections and the output projection."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from gpam.attention.facts import Facts
from gpam.attention.options import NoOptions
from gpam.attention.site import Site
from gpam.errors import UsageError


class StackMemory:
    """What the mechanisms of one stack hand from layer to layer within one forward pass, by name.

    It is no part of the model: a copied or pickled model starts with an empty one, still shared by its stack.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return StackMemory, ()


class Mechanism(nn.Module):
    """Base of all mechanisms. A subclass gives :meth:`weights`, or a faster or different :meth:`forward`.

    Shapes: ``q`` ``[batch, heads, target, head_dim]``, ``k`` and ``v`` ``[batch, heads, source, head_dim]``,
    ``key_padding_mask`` ``[batch, source]``, true at padding.
    """

    Options: type = NoOptions
    facts: ClassVar[Facts]
    #: Whether a later layer reads what an earlier one left in ``stack``, so that no layer may be skipped.
    needs_every_layer: ClassVar[bool] = False
    #: Whether :meth:`forward` gives :meth:`weights` times the values, and nothing else (dropout aside).
    mixes_only: ClassVar[bool] = True

    def __init__(self, site: Site, options: Any) -> None:
        super().__init__()
        self.site = site
        self.options = options
        #: Whoever builds a model gives all mechanisms of one stack and role the same one.
        self.stack = StackMemory()
        #: How a sum of softmaxes is computed (``gpam.attention.functional``); no mechanism's numbers depend on it.
        self.backend = "auto"
        #: Attention dropout in evaluation too (fairseq's ``--retain-dropout``).
        self.retain_dropout = False

    @classmethod
    def used_at(cls, site: Site, options: Any) -> bool:
        """Whether this mechanism stands at ``site``; where it does not, the model keeps softmax."""
        return True

    def weights(self, q: Tensor, k: Tensor, *, key_padding_mask: Tensor | None = None, causal: bool = False) -> Tensor:
        """The attention weights ``[batch, heads, target, source]``, before dropout."""
        raise NotImplementedError

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_input: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        need_weights: bool = False,
        state: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output ``[batch, heads, target, head_dim]`` and, with ``need_weights``, the weights before dropout.

        ``query_input`` ``[batch, target, embed_dim]`` is what the queries were made from. ``state`` is given when
        targets come one at a time (decoding): the mechanism may keep tensors there, batch first, from step to step.
        """
        weights = self.weights(q, k, key_padding_mask=key_padding_mask, causal=causal)
        return self.dropped(weights) @ v, weights if need_weights else None

    def after_heads(self, output: Tensor) -> Tensor:
        """Applied to the concatenated heads ``[batch, target, embed_dim]``, before the output projection."""
        return output

    def after_block(
        self,
        x: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        state: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """Applied to the residual sum behind a self-attention block ``[batch, target, embed_dim]``, before the layer
        norm that reads it. Masks and ``state`` are those of the block's :meth:`forward`."""
        return x

    def row_sum(self) -> float | Tensor | None:
        """What every row sums to with the present parameters, one number or one a head; ``None``: it varies."""
        return None

    def weight_range(self) -> tuple[float | Tensor, float | Tensor]:
        """The least and the largest weight possible with the present parameters, numbers or one a head."""
        return float("-inf"), float("inf")

    def required(self, query_input: Tensor | None) -> Tensor:
        """``query_input``, for a mechanism that cannot do without."""
        if query_input is None:
            raise UsageError(
                f"{type(self).__name__} makes a map of the queries' input: got no query_input, wanted "
                f"[batch, target, {self.site.embed_dim}]"
            )
        return query_input

    @property
    def active_dropout(self) -> float:
        return self.site.dropout if self.training or self.retain_dropout else 0.0

    def dropped(self, weights: Tensor) -> Tensor:
        """Attention dropout (none in evaluation)."""
        return F.dropout(weights, self.active_dropout) if self.active_dropout else weights
