"""fairseq's multi-head attention with a mechanism of ``gpam.attention`` between its projections."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from gpam.attention.base import Mechanism
from gpam.errors import UsageError


class GPAMMultiheadAttention(MultiheadAttention):
    """Keeps fairseq's contract: arguments, ``T x B x C`` tensors, projections and their state-dict names, padding,
    key and value widths, weight return, incremental state and its reordering. Extra parameters of the mechanism
    stand under ``mechanism.``.

    Built from a stock module, whose projections it takes over: so a model has the same initial parameters under
    the same seed whatever its mechanism.
    """

    def __init__(self, stock: MultiheadAttention, mechanism: Mechanism) -> None:
        torch.nn.Module.__init__(self)
        if stock.bias_k is not None or stock.add_zero_attn or stock.use_xformers:
            raise UsageError("add_bias_kv, add_zero_attn and xformers attention are not supported by gpam attention")
        self.__dict__.update({name: value for name, value in vars(stock).items() if name not in self.__dict__})
        for name, child in stock.named_children():
            self.add_module(name, child)
        self.mechanism = mechanism
        self.acts_after_block = type(mechanism).after_block is not Mechanism.after_block
        self._block: dict[str, Any] | None = None
        self.train(stock.training)

    def set_beam_size(self, beam_size: int) -> None:
        """Nothing to do: the cross-attention cache here is one entry a hypothesis, not one a sentence."""

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Arguments and results as in fairseq: weights are ``[batch, target, source]``, the mean over heads, or
        ``[heads, batch, target, source]`` with ``need_head_weights``."""
        if before_softmax:
            raise NotImplementedError("before_softmax has no meaning for a mechanism that is not one softmax")
        self.mechanism.retain_dropout = self.dropout_module.apply_during_inference
        self.mechanism.set_dropout(self.dropout_module.p)
        target, batch, _ = query.shape
        state = None if incremental_state is None else self._get_input_buffer(incremental_state)
        if static_kv and state and "prev_key" in state:
            k, v, key_padding_mask = state["prev_key"], state["prev_value"], state.get("prev_key_padding_mask")
        else:
            if self.self_attention:
                key = value = query
            elif self.encoder_decoder_attention:
                value = key
            k, v = self._heads(self.k_proj(key)), self._heads(self.v_proj(value))
            if state is not None:
                k, v, key_padding_mask = self._extend(state, k, v, key_padding_mask)
        if attn_mask is not None:
            refuse_if_not_causal(attn_mask)
        block = {
            "key_padding_mask": None if key_padding_mask is None else key_padding_mask.bool(),
            "causal": attn_mask is not None,
            "state": state,
        }
        output, weights = self.mechanism(
            self._heads(self.q_proj(query)),
            k,
            v,
            query_input=query.transpose(0, 1),
            need_weights=need_weights or need_head_weights,
            **block,
        )
        if self.acts_after_block:
            self._block = block
        if incremental_state is not None:
            self._set_input_buffer(incremental_state, state)
        merged = output.permute(2, 0, 1, 3).reshape(target, batch, self.embed_dim)
        merged = self.mechanism.after_heads(merged.transpose(0, 1)).transpose(0, 1)
        if weights is not None:
            weights = weights.transpose(0, 1) if need_head_weights else weights.mean(dim=1)
        return self.out_proj(merged), weights

    def after_block(self, layer_norm: torch.nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """The mechanism's part behind this block, as a forward pre-hook of the layer norm that reads the residual
        sum; the hook runs after :meth:`forward`, whose masks and state it takes."""
        (x,) = inputs
        block, self._block = self._block, None
        return (self.mechanism.after_block(x.transpose(0, 1), **block).transpose(0, 1),)

    def _heads(self, x: Tensor) -> Tensor:
        """``T x B x C`` to ``[batch, heads, T, head_dim]``, without a copy."""
        length, batch, _ = x.shape
        return x.view(length, batch, self.num_heads, self.head_dim).permute(1, 2, 0, 3)

    @staticmethod
    def _extend(
        state: dict[str, Tensor | None], k: Tensor, v: Tensor, key_padding_mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append this step's keys, values and padding to the cache, and return the whole."""
        if "prev_key" in state:
            earlier = state["prev_key"].shape[2]
            earlier_padding = state.get("prev_key_padding_mask")
            if key_padding_mask is not None or earlier_padding is not None:
                if earlier_padding is None:
                    earlier_padding = k.new_zeros(k.shape[0], earlier, dtype=torch.bool)
                if key_padding_mask is None:
                    key_padding_mask = k.new_zeros(k.shape[0], k.shape[2], dtype=torch.bool)
                key_padding_mask = torch.cat([earlier_padding.bool(), key_padding_mask.bool()], dim=1)
            k, v = torch.cat([state["prev_key"], k], dim=2), torch.cat([state["prev_value"], v], dim=2)
        state.update(prev_key=k, prev_value=v, prev_key_padding_mask=key_padding_mask)
        return k, v, key_padding_mask


def refuse_if_not_causal(attn_mask: Tensor) -> None:
    """Of masks only fairseq's causal one is known, zero up to the diagonal and ``-inf`` above it.

    The decoder hands out slices of one buffer, so the buffer is looked at once and remembers the answer.
    """
    buffer = attn_mask if attn_mask._base is None else attn_mask._base
    square = len(set(attn_mask.shape)) == 1
    leading_square = square and attn_mask.storage_offset() == 0 and attn_mask.stride() == buffer.stride()
    if not leading_square:
        buffer = attn_mask
    version = None if buffer.is_inference() else buffer._version  # without one it is looked at each time
    if version is None or getattr(buffer, "_gpam_causal_at", None) != version:
        size = buffer.shape[-1]
        causal = torch.full((size, size), float("-inf"), dtype=buffer.dtype, device=buffer.device).triu(1)
        if buffer.shape != causal.shape or not torch.equal(buffer, causal):
            raise NotImplementedError(
                f"an attn_mask of shape {tuple(attn_mask.shape)} that is not causal: only fairseq's causal mask and "
                "key_padding_mask are supported"
            )
        buffer._gpam_causal_at = version
