"""What a mechanism is: the part of multi-head attention between the projections and the output projection."""

import dataclasses
import re
import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from gpam.attention.backends.problem import check_padding, finite_at_padding
from gpam.attention.call import Call, Masks, mask_for
from gpam.attention.facts import Facts
from gpam.attention.options import NoOptions
from gpam.attention.site import Role, Site
from gpam.errors import UsageError
from gpam.tracing import casts, in_autocasts_dtype


class StackMemory(threading.local):
    """What the mechanisms of one stack hand from layer to layer within one forward pass, by name, in each thread apart.

    It is no part of the model: a copied or pickled model starts with an empty one, still shared by its stack.
    """

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return StackMemory, ()


class Place(NamedTuple):
    """Which of the ``layers`` of its stack a module is, from 0, and what that stack shares."""

    layer: int
    layers: int
    stack: StackMemory


def places(stacks: Sequence[Hashable]) -> Iterator[Place]:
    """Of a model's attention modules, in order, by the stack that each belongs to."""
    layers, seen = Counter(stacks), Counter[Hashable]()
    memories = {stack: StackMemory() for stack in layers}
    for stack in stacks:
        yield Place(seen[stack], layers[stack], memories[stack])
        seen[stack] += 1


def stacks_of(modules: Sequence[tuple[Role, str]]) -> list[Hashable]:
    """Of the modules of any model, by role and path, the stack that each belongs to: those of one role whose paths
    differ in one number alone. Where several numbers differ it is the last, as ``0`` of ``encoders.1.layers.0``."""
    patterns = [(role, re.sub(r"\d+", "#", path)) for role, path in modules]
    numbers = [re.findall(r"\d+", path) for _, path in modules]
    layer: dict[Hashable, int | None] = {}
    for pattern in set(patterns):
        columns = zip(*(own for own, of in zip(numbers, patterns, strict=True) if of == pattern), strict=True)
        layer[pattern] = max((place for place, column in enumerate(columns) if len(set(column)) > 1), default=None)
    return [
        (pattern, *(number for place, number in enumerate(own) if place != layer[pattern]))
        for own, pattern in zip(numbers, patterns, strict=True)
    ]


class Mechanism(nn.Module):
    """Base of all mechanisms. A subclass gives :meth:`_weights`, or a faster or different :meth:`_attend`."""

    Options: type = NoOptions
    facts: ClassVar[Facts]
    #: As it is registered.
    name: ClassVar[str] = "without a name"
    #: Whether a later layer reads what an earlier one left in ``stack``, so that no layer may be skipped.
    needs_every_layer: ClassVar[bool] = False
    #: Whether :meth:`forward` gives :meth:`weights` times the values, and nothing else (dropout aside).
    mixes_only: ClassVar[bool] = True
    #: Whether :meth:`forward` must be given ``query_input``.
    needs_query_input: ClassVar[bool] = False
    #: Whether a bias may be added to the scores (``attn_mask`` of floats).
    takes_bias: ClassVar[bool] = True
    #: Whether its formula counts the keys that a row sees.
    counts_keys: ClassVar[bool] = False
    #: Its parameters that have a number for each component of a head, and not for each head.
    of_components: ClassVar[tuple[str, ...]] = ()

    def __init__(self, site: Site, options: Any) -> None:
        super().__init__()
        self.site = site
        self.options = options
        #: Whoever builds a model gives all mechanisms of one stack and role the same one.
        self.stack = StackMemory()
        #: How a sum of softmaxes is computed (``gpam.attention.functional``); numbers differ by rounding.
        self.backend = "auto"
        #: Attention dropout in evaluation too (fairseq's ``--retain-dropout``).
        self.retain_dropout = False

    @classmethod
    def used_at(cls, site: Site, options: Any) -> bool:
        """Whether this mechanism stands at ``site``; where it does not, the model keeps softmax."""
        return cls.facts.cross or site.role != "cross"

    def weights(
        self,
        q: Tensor,
        k: Tensor,
        *,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        attn_mask: Tensor | None = None,
    ) -> Tensor:
        """The attention weights ``[batch, heads, target, source]``, before dropout; masks as in :meth:`forward`.
        ``differential`` has one matrix for two heads.

        Raises:
            NotImplementedError: weights that need the block's input (``differential_v2``): call the mechanism itself.
        """
        q, k = _of_one_dtype(q, k)
        self._check(q, k)
        k = _for_each_head(k, q.shape[1])
        masks = self._masks(q, k, key_padding_mask, causal, attn_mask)
        return self._weights(q, finite_at_padding(k, key_padding_mask), masks)

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        query_input: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        attn_mask: Tensor | None = None,
        need_weights: bool = False,
        state: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output ``[batch, heads, target, head_dim]`` and, with ``need_weights``, the weights before dropout.

        Args:
            q: ``[batch, heads, target, head_dim]``.
            k, v: ``[batch, heads, source, head_dim]``, or with fewer heads, each serving as many neighbouring heads of
                ``q`` (grouped queries).
            query_input: ``[batch, target, embed_dim]``, what the queries were made from.
            key_padding_mask: bool ``[batch, source]``, true at padding.
            causal: the targets are the last positions of the source, and see nothing behind their own.
            attn_mask: broadcastable to ``[batch, heads, target, source]``; boolean, true where a key is hidden, or of
                floats that are added to the scores.
            state: given when targets come a few at a time (decoding): the mechanism may keep tensors there, batch
                first, from step to step.

        Raises:
            UsageError: tensors or masks whose shape or kind does not fit; heads that do not divide.
        """
        q, k, v = _of_one_dtype(q, k, v)
        self._check(q, k, v)
        k, v = (_for_each_head(tensor, q.shape[1]) for tensor in (k, v))
        masks = self._masks(q, k, key_padding_mask, causal, attn_mask)
        return self._attend(Call(q, k, v, masks, query_input, need_weights, state))

    def _check(self, q: Tensor, k: Tensor, *values: Tensor) -> None:
        """UsageError where queries, keys and values do not belong together, or not here."""
        given, heads = (q, k, *values), self.site.num_heads
        width = self.site.head_dim  # of queries and keys: some models have other values
        fit = all(x.dim() == 4 and x.shape[0] == q.shape[0] and x.dtype == q.dtype for x in given)
        fit = fit and q.shape[1] == heads and q.shape[3] == k.shape[3] == width
        if not fit or any(v.shape[2] != k.shape[2] for v in values):
            shapes = ", ".join(f"{list(x.shape)} of {x.dtype}" for x in given)
            raise UsageError(
                f"queries, keys and values: got {shapes}, wanted [batch, {heads} heads, length, head_dim = {width}] of "
                "one dtype, one batch for all, and a value for each key"
            )

    def _masks(
        self, q: Tensor, k: Tensor, key_padding_mask: Tensor | None, causal: bool, attn_mask: Tensor | None
    ) -> Masks:
        check_padding(key_padding_mask, q.shape[0], k.shape[2])
        if attn_mask is not None:
            attn_mask = mask_for(
                self.name, attn_mask, q, k.shape[2], takes_bias=self.takes_bias, counts_keys=self.counts_keys
            )
        return Masks(key_padding_mask, causal, attn_mask)

    def _weights(self, q: Tensor, k: Tensor, masks: Masks) -> Tensor:
        """:meth:`weights`, for the subclass to give."""
        raise NotImplementedError(
            f"attention '{self.name}' has its weights beside its output alone: call it with need_weights=True"
        )

    def _attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        """:meth:`forward`, for the subclass to make faster, or different."""
        call = call.finite_at_padding()
        weights = self._weights(call.q, call.k, call.masks)
        return self.dropped(weights) @ call.v, weights if call.need_weights else None

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

    def required_query_input(self, call: Call) -> Tensor:
        """``query_input``, for a mechanism that cannot do without."""
        wanted = [call.q.shape[0], call.q.shape[2], self.site.embed_dim]
        if call.query_input is None or list(call.query_input.shape) != wanted:
            got = "no query_input" if call.query_input is None else f"one of shape {list(call.query_input.shape)}"
            raise UsageError(
                f"attention '{self.name}' makes a map of the queries' input: got {got}, wanted [batch, target, width] "
                f"= {wanted}"
            )
        return call.query_input

    def set_dropout(self, dropout: float) -> None:
        """Attention dropout from now on: whoever holds this mechanism says at each call what its own is."""
        if self.site.dropout != dropout:
            self.site = dataclasses.replace(self.site, dropout=dropout)

    @property
    def active_dropout(self) -> float:
        return self.site.dropout if self.training or self.retain_dropout else 0.0

    def dropped(self, weights: Tensor) -> Tensor:
        """``weights`` after :attr:`active_dropout`."""
        return F.dropout(weights, self.active_dropout) if self.active_dropout else weights


def _of_one_dtype(*given: Tensor) -> Sequence[Tensor]:
    """Under autocast rotated queries and keys come in float32 beside half-precision values."""
    differ = len({x.dtype for x in given}) > 1
    return in_autocasts_dtype(*given) if differ and casts(given[0].device.type) else given


def _for_each_head(x: Tensor, heads: int) -> Tensor:
    """``x`` ``[batch, groups, source, head_dim]`` with each group repeated for its ``heads / groups`` heads."""
    if x.shape[1] == heads:
        return x
    if not x.shape[1] or heads % x.shape[1]:
        raise UsageError(f"got {x.shape[1]} heads of keys or values for {heads} heads of queries, wanted a divisor")
    return x.repeat_interleave(heads // x.shape[1], dim=1)
