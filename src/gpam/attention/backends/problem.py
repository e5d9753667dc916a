"""The checked arguments of one attention call, in the one form every backend reads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpam.attention.backends.masks import hidden_by
from gpam.errors import UsageError, did_you_mean
from gpam.tracing import runs_as_called

Weight = float | Tensor
DROPOUT_PLACES = ("branches", "combined")


@dataclass(frozen=True)
class Problem:
    """``O = sum_j c_j softmax(Q_j K_j^T / sqrt(d) + mask) V``, checked.

    queries: one ``[batch, heads, target, d]`` tensor a branch; keys: one ``[batch, heads, source, d]`` tensor for all
    branches, or one a branch; values ``[batch, heads, source, d_v]``; weights ``c`` ``[branches, batch, heads,
    target or 1, 1]`` (an expanded view), in float32 or wider; key_padding_mask ``[batch, source]``, True = padding;
    attn_mask broadcastable to ``[batch, heads, target, source]``: bool, True = hidden, or added to the scores.
    """

    queries: tuple[Tensor, ...]
    keys: tuple[Tensor, ...]
    values: Tensor
    weights: Tensor
    key_padding_mask: Tensor | None
    causal: bool
    attn_mask: Tensor | None
    dropout: float
    dropout_on: str
    plain: bool  # one branch of weight 1: softmax attention itself

    @property
    def branches(self) -> int:
        return len(self.queries)

    @property
    def scale(self) -> float:
        return self.queries[0].shape[-1] ** -0.5

    @property
    def target(self) -> int:
        return self.queries[0].shape[-2]

    @property
    def source(self) -> int:
        return self.values.shape[-2]

    @property
    def square(self) -> bool:
        """Whether its masks are those that every backend knows: padding, and causal targets as many as sources."""
        return self.attn_mask is None and not (self.causal and self.target != self.source)

    @property
    def combined_dropout(self) -> bool:
        return self.dropout > 0 and self.dropout_on == "combined" and self.branches > 1

    @property
    def in_memory(self) -> bool:
        """Whether the numbers lie where the tensors point: those of a subclass may not, nor those of which a sign is
        still to be turned, or which are known to be zeros."""
        given = (self.values, self.weights, self.key_padding_mask, *self.queries, *self.keys)
        return all(
            type(one) in (Tensor, torch.nn.Parameter)
            and one.layout is torch.strided
            and not (one.is_neg() or one._is_zerotensor())
            for one in given
            if one is not None
        )

    def visible(self) -> Tensor | None:
        """Bool, broadcastable to ``[batch, heads, target, source]``: True where the key is visible; None: all are."""
        visible = None if self.key_padding_mask is None else ~self.key_padding_mask[:, None, None, :]
        if self.causal:
            past = torch.ones(self.target, self.source, dtype=torch.bool, device=self.values.device)
            past = past.tril(self.source - self.target)
            visible = past if visible is None else visible & past
        if self.attn_mask is not None:
            seen = ~hidden_by(self.attn_mask)
            visible = seen if visible is None else visible & seen
        return visible

    def key(self, branch: int) -> Tensor:
        return self.keys[branch if len(self.keys) > 1 else 0]


def make_problem(
    queries: Sequence[Tensor],
    keys: Tensor | Sequence[Tensor],
    values: Tensor,
    weights: Sequence[Weight],
    *,
    key_padding_mask: Tensor | None,
    causal: bool,
    attn_mask: Tensor | None,
    dropout: float,
    dropout_on: str,
) -> Problem:
    """Check the arguments of ``gpam.attention.functional`` against each other; raises ``UsageError``."""
    queries = tuple(queries)
    keys = (keys,) if isinstance(keys, Tensor) else tuple(keys)
    if all(key is keys[0] for key in keys):
        keys = keys[:1]
    _check_tensors(queries, keys, values)
    batch, heads, target, _ = queries[0].shape
    source = values.shape[2]
    if causal and target > source:
        raise UsageError(
            f"causal attention needs a key for each query, got target length {target} and source length {source}; "
            "leave causal=False for cross attention"
        )
    if not (isinstance(dropout, int | float) and 0 <= dropout < 1):
        raise UsageError(f"dropout must be a probability in [0, 1), got {dropout!r}")
    if dropout_on not in DROPOUT_PLACES:
        raise UsageError(
            f"dropout_on must be one of {', '.join(DROPOUT_PLACES)}, got {dropout_on!r}"
            f"{did_you_mean(dropout_on, DROPOUT_PLACES)}"
        )
    check_padding(key_padding_mask, batch, source)
    if len(weights) != len(queries):
        raise UsageError(f"one weight a branch is needed: got {len(weights)} weights for {len(queries)} queries")
    values = finite_at_padding(values, key_padding_mask)
    return Problem(
        queries,
        tuple(finite_at_padding(key, key_padding_mask) for key in keys),
        values,
        _stack_weights(weights, batch, heads, target, values),
        key_padding_mask,
        causal and target > 1,  # a single target is the last position
        None if attn_mask is None else checked_attn_mask(attn_mask, (batch, heads, target, source)),
        float(dropout),
        dropout_on,
        plain=len(queries) == 1 and isinstance(weights[0], int | float) and weights[0] == 1,
    )


def check_padding(mask: Tensor | None, batch: int, source: int) -> None:
    """UsageError where a ``key_padding_mask`` is not bool ``[batch, source]``."""
    if mask is not None and (mask.dtype != torch.bool or tuple(mask.shape) != (batch, source)):
        raise UsageError(
            f"key_padding_mask must be a bool tensor of shape [batch={batch}, source={source}] (True = padding), "
            f"got {mask.dtype} of shape {list(mask.shape)}"
        )


def checked_attn_mask(attn_mask: Tensor, full: tuple[int, int, int, int]) -> Tensor:
    """``attn_mask`` in four dimensions; UsageError where it is not broadcastable to ``full`` ``[batch, heads, target,
    source]``, or neither boolean nor of floats."""
    shape = (1,) * (4 - attn_mask.dim()) + tuple(attn_mask.shape)
    if len(shape) > 4 or any(size not in (1, whole) for size, whole in zip(shape, full, strict=True)):
        raise UsageError(
            f"attn_mask must be broadcastable to [batch, heads, target, source] = {list(full)}, "
            f"got shape {list(attn_mask.shape)}"
        )
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise UsageError(f"attn_mask must be of booleans (true: hidden) or floats (added), got {attn_mask.dtype}")
    return attn_mask.reshape(shape)


def finite_at_padding(tensor: Tensor, padding: Tensor | None) -> Tensor:
    """``tensor`` ``[batch, heads, source, head_dim]`` with zeros at padded places, if it needs them: a weight of 0 does
    not hide an infinity or a NaN."""
    if padding is None:
        return tensor
    may_ask = tensor.device.type == "cpu" and runs_as_called()  # asking a GPU would wait for it
    if may_ask and math.isfinite(tensor.detach().sum()):
        return tensor
    return tensor.masked_fill(padding[:, None, :, None], 0.0)


def _check_tensors(queries: tuple[Tensor, ...], keys: tuple[Tensor, ...], values: Tensor) -> None:
    if not queries:
        raise UsageError("at least one query tensor is needed, got none")
    if len(keys) not in (1, len(queries)):
        raise UsageError(
            f"keys must be one tensor for all branches or one a branch: got {len(keys)} keys for {len(queries)} queries"
        )
    for name, tensor in (*(("query", q) for q in queries), *(("key", k) for k in keys), ("value", values)):
        if tensor.dim() != 4:
            raise UsageError(f"every {name} must be [batch, heads, length, head_dim], got shape {list(tensor.shape)}")
        if not tensor.is_floating_point() or tensor.dtype != values.dtype or tensor.device != values.device:
            raise UsageError(
                "queries, keys and values must share one floating point dtype and one device, "
                f"got a {name} of {tensor.dtype} on {tensor.device} beside values of {values.dtype} on {values.device}"
            )
    batch, heads, _, head_dim = queries[0].shape
    for query in queries:
        if query.shape != queries[0].shape:
            raise UsageError(f"queries must have one shape, got {list(query.shape)} beside {list(queries[0].shape)}")
    for key in keys:
        if tuple(key.shape) != (batch, heads, values.shape[2], head_dim):
            raise UsageError(
                f"a key must be [batch={batch}, heads={heads}, source={values.shape[2]}, head_dim={head_dim}] to match "
                f"the queries and values, got {list(key.shape)}"
            )
    if tuple(values.shape[:2]) != (batch, heads):
        raise UsageError(f"values must have batch {batch} and {heads} heads as queries do, got {list(values.shape)}")
    if min(heads, head_dim, values.shape[-1]) == 0:
        raise UsageError(
            f"neither heads nor their width may be 0, got queries {list(queries[0].shape)}, values {list(values.shape)}"
        )


def rows_together(tensor: Tensor) -> Tensor:
    """``tensor`` with the numbers of a row next to each other: kernels read any strides but that of the last
    dimension."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _stack_weights(weights: Sequence[Weight], batch: int, heads: int, target: int, values: Tensor) -> Tensor:
    """``[branches, batch, heads, target or 1, 1]``, an expanded view through which autograd sums gradients back."""
    dtype = torch.promote_types(values.dtype, torch.float32)
    if values.device.type == "cpu" and all(isinstance(weight, int | float) for weight in weights):
        numbers = torch.tensor(weights, dtype=dtype, device="cpu")  # in a step of decoding every small call shows
        return numbers.view(-1, 1, 1, 1, 1).expand(-1, batch, heads, 1, 1)
    tensors = [
        # a number is filled in there: to copy it makes the CPU wait for a GPU
        weight.to(values.device, dtype)
        if isinstance(weight, Tensor)
        else torch.full((), weight, dtype=dtype, device=values.device)
        for weight in weights
    ]
    shaped = [_weight_as_4d(tensor, (batch, heads, target, 1)) for tensor in tensors]
    stacked = torch.stack(torch.broadcast_tensors(*shaped))
    return stacked.expand(len(weights), batch, heads, stacked.shape[3], 1)


def _weight_as_4d(weight: Tensor, full: tuple[int, ...]) -> Tensor:
    shape = (weight.numel(), 1, 1) if weight.dim() == 1 else tuple(weight.shape)
    shape = (1,) * (4 - len(shape)) + shape
    if len(shape) > 4 or any(size not in (1, want) for size, want in zip(shape, full, strict=True)):
        batch, heads, target, _ = full
        raise UsageError(
            f"a weight must be a number, a [heads={heads}] tensor or broadcastable to [batch={batch}, heads={heads}, "
            f"target={target}, 1], got shape {list(weight.shape)}"
        )
    return weight.reshape(shape)
