"""Multi-head attention with PyTorch's contract and any mechanism between its projections."""

from typing import Any

import torch
from torch import Tensor, nn

from gpam.attention import Site, build, mechanism_class
from gpam.attention.backends.masks import adds_beside_hiding, hidden_by
from gpam.attention.backends.problem import checked_attn_mask
from gpam.attention.base import Mechanism
from gpam.attention.parts import merge_heads, split_heads
from gpam.attention.site import Role
from gpam.errors import UsageError
from gpam.tracing import casts, runs_as_called

Cache = dict[str, Tensor]


class MultiheadAttention(nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention`` with a mechanism of ``gpam.attention`` in place of its softmax.

    ::

        Y = concat(heads) W_O,   heads = mechanism(X W_Q, X_k W_K, X_v W_V)

    Projections, their initial values and their names in a state dict are torch's, so that trained weights load; what
    the mechanism learns stands under ``mechanism.``. With ``mechanism="softmax"`` outputs, weights and gradients are
    torch's to rounding (weights: those before dropout). ``add_bias_kv`` and ``add_zero_attn`` are not offered.

    Args:
        embed_dim, num_heads, dropout, bias, batch_first, kdim, vdim, device, dtype: as in torch's module.
        mechanism: a name of ``gpam.attention.names()``.
        role: "encoder", "decoder" (self attention of a decoder) or "cross"; where a mechanism does not stand in cross
            attention, softmax does. Default: "cross" where keys or values have a width of their own, else "encoder".
        layer, layers: the place in a stack of layers, for mechanisms that differ by depth.
        options: the mechanism's own, such as ``lambda_pos=0.2`` or ``lambdas="trainable"``.

    Raises:
        UsageError: an unknown mechanism or option, sizes that do not divide, a mechanism that needs more than a layer.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        mechanism: str = "dagpam",
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        *,
        role: Role | None = None,
        layer: int = 0,
        layers: int = 1,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        widths = {embed_dim, kdim or embed_dim, vdim or embed_dim}
        site = Site(embed_dim, num_heads, role or ("cross" if len(widths) > 1 else "encoder"), layer, layers, dropout)
        _check(mechanism, site)
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            batch_first=batch_first,
            kdim=kdim,
            vdim=vdim,
            device=device,
            dtype=dtype,
        )
        self.mechanism: Mechanism = build(mechanism, site, options).to(device=device, dtype=dtype)

    def _reset_parameters(self) -> None:
        self._qkv_same_embed_dim = self.in_proj_weight is not None
        super()._reset_parameters()
        # What torch's encoder layers ask before they compute softmax attention themselves, without calling this module.
        self._qkv_same_embed_dim = False

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The output and, with ``need_weights``, the weights: before dropout, where torch's module has them behind it.

        Args:
            query, key, value: ``[target, batch, width]``, ``[batch, target, width]`` with ``batch_first``, or unbatched
                ``[target, width]``.
            key_padding_mask: ``[batch, source]``; boolean, true at padding, or added to the scores.
            need_weights: false is faster.
            attn_mask: ``[target, source]`` or ``[batch * heads, target, source]``; boolean, true where a key is hidden,
                or added to the scores. What is to be hidden is ``-inf`` or the least finite number: any other is added
                (where a mechanism counts keys, -1e4 and less hides too; one without scores to add to refuses it).
            average_attn_weights: weights ``[batch, target, source]``, the mean of the heads; else one matrix a head
                (``differential``: one for two heads).
            is_causal: the targets are the last positions of the source and see nothing behind their own. As in torch
                it says what ``attn_mask`` would, which is then not read; unlike in torch the mask may be left out.
                Where targets are fewer than sources and there is a mask, the mask alone counts.
            cache: an empty dict at first, the same at each step of decoding: keys and values of this call are appended
                to what it holds, ``[batch, heads, length, head_dim]`` each, and attended to as a whole. A call that is
                refused leaves it as it was.

        Raises:
            UsageError: inputs or masks whose shape or kind does not fit; another source than the query in a mechanism
                that stands in self attention only.
        """
        self._check_inputs(query, key, value)
        self.mechanism.set_dropout(self.dropout)
        together = query is key and key is value
        batched = query.dim() == 3
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        q, k, v = (split_heads(x, self.num_heads) for x in self._project(query, key, value, together))
        if cache is not None:
            if "key" in cache and cache["key"].shape[:2] != k.shape[:2]:
                raise UsageError(
                    f"cache: got one of batch and heads {list(cache['key'].shape[:2])} for {list(k.shape[:2])}, wanted "
                    "that of the same sentences; begin others with an empty one"
                )
            before = ((cache.get(name), new) for name, new in (("key", k), ("value", v)))
            k, v = (new if old is None else torch.cat([old, new], dim=2) for old, new in before)
        if attn_mask is not None and q.shape[2] != k.shape[2]:
            # only a hint then: of such a mask torch counts from the first key, the mechanisms from the last
            is_causal = False
        output, weights = self.mechanism(
            q,
            k,
            v,
            query_input=query,
            causal=is_causal,
            need_weights=need_weights,
            state=cache,
            **self._masks(key_padding_mask, None if is_causal else attn_mask, q.shape[0], q.shape[2], k.shape[2]),
        )
        if cache is not None:
            cache.update(key=k, value=v)
        output = self.out_proj(self.mechanism.after_heads(merge_heads(output)))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return output.squeeze(0), None if weights is None else weights.squeeze(0)
        return output if self.batch_first else output.transpose(0, 1), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor, together: bool) -> tuple[Tensor, Tensor, Tensor]:
        """``together``: the three are one input."""
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        if self.in_proj_weight is None:
            maps = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        elif together:
            return nn.functional.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        else:
            maps = self.in_proj_weight.chunk(3)
        inputs = (query, key, value)
        return tuple(nn.functional.linear(*given) for given in zip(inputs, maps, biases, strict=True))

    def _masks(
        self, key_padding_mask: Tensor | None, attn_mask: Tensor | None, batch: int, target: int, source: int
    ) -> dict[str, Tensor | None]:
        """Masks as a mechanism takes them: padding of booleans, the other broadcastable to the scores."""
        if attn_mask is not None and attn_mask.dim() == 3:
            if len(attn_mask) != batch * self.num_heads:
                raise UsageError(
                    f"attn_mask of three dimensions must be [batch * heads = {batch * self.num_heads}, target, "
                    f"source], got shape {list(attn_mask.shape)}"
                )
            attn_mask = attn_mask.unflatten(0, (batch, self.num_heads))
        if key_padding_mask is not None and tuple(key_padding_mask.shape) != (batch, source):
            raise UsageError(
                f"key_padding_mask must be [batch, source] = [{batch}, {source}], got shape "
                f"{list(key_padding_mask.shape)}"
            )
        if key_padding_mask is not None and key_padding_mask.is_floating_point():
            # torch's layers hand padding on as floats. Where they may be looked at they mostly hide and no more.
            if key_padding_mask.requires_grad or not runs_as_called() or adds_beside_hiding(key_padding_mask):
                if attn_mask is not None:
                    attn_mask = checked_attn_mask(attn_mask, (batch, self.num_heads, target, source))
                return {"attn_mask": _sum(key_padding_mask[:, None, None, :], attn_mask)}
            key_padding_mask = hidden_by(key_padding_mask)
        return {"key_padding_mask": key_padding_mask, "attn_mask": attn_mask}

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.is_nested:
            raise UsageError(
                "got nested tensors, which torch's encoder makes of padding in evaluation, wanted plain ones: convert "
                "the whole encoder by gpam.nn.convert, or set its use_nested_tensor to False"
            )
        given, widths, dtype = (query, key, value), (self.embed_dim, self.kdim, self.vdim), self.out_proj.weight.dtype
        fit = query.dim() in (2, 3) and all(x.dim() == query.dim() for x in given)
        same = all(x.dtype == dtype for x in given) or casts(query.device.type)
        if not fit or not same or any(x.shape[-1] != width for x, width in zip(given, widths, strict=True)):
            shapes = ", ".join(f"{list(x.shape)} of {x.dtype}" for x in given)
            raise UsageError(
                f"query, key and value: got {shapes}, wanted two dimensions (unbatched) or three, widths "
                f"{', '.join(map(str, widths))}, and {dtype}"
            )
        mechanism = self.mechanism
        if not _one_input(query, key) and mechanism.site.role != "cross" and not mechanism.facts.cross:
            raise UsageError(
                f"attention '{mechanism.name}' stands in self attention only: got keys that are another tensor than "
                "the queries, wanted the same one, and while compiled the same object; or role='cross' at construction "
                "(softmax stands there)"
            )

    def extra_repr(self) -> str:
        return f"{self.embed_dim}, {self.num_heads}, batch_first={self.batch_first}"


def _check(mechanism: str, site: Site) -> None:
    """UsageError where a layer by itself cannot give what the mechanism needs."""
    refuse_what_acts_behind_the_block(mechanism)
    chosen = mechanism_class(mechanism)
    if chosen.needs_every_layer and site.layers == 1 and (chosen.facts.cross or site.role != "cross"):
        raise UsageError(
            f"attention '{mechanism}' hands values from layer to layer: got a stack of one layer, wanted two or more; "
            "convert a whole model by gpam.nn.convert, or give layer=, layers= and one StackMemory to all mechanisms"
        )


def refuse_what_acts_behind_the_block(mechanism: str) -> None:
    """UsageError for a mechanism of which an attention module is only a part."""
    if mechanism_class(mechanism).after_block is not Mechanism.after_block:
        raise UsageError(
            f"attention '{mechanism}' acts on the residual sum behind the block, which an attention module does not "
            "see: build it by gpam.attention.build, and call its after_block there"
        )


def _one_input(first: Tensor, second: Tensor) -> bool:
    """Whether two are the same numbers: one tensor, or views of one place, such as a slice that is written twice."""
    if first is second or not runs_as_called():
        return first is second
    same_form = first.shape == second.shape and first.stride() == second.stride()
    return same_form and first.data_ptr() == second.data_ptr()


def _sum(bias: Tensor, attn_mask: Tensor | None) -> Tensor:
    """One mask of floats that hides and adds what both do."""
    if attn_mask is None:
        return bias
    if attn_mask.dtype == torch.bool:
        return bias.masked_fill(attn_mask, float("-inf"))
    return bias + attn_mask
