"""The same attention as others compute it: PyTorch, fairseq, the textbook, the authors of differential attention.

Each is a function ``(mechanism, q, k, v, key_padding_mask, causal) -> output`` of a mechanism's own parameters, in the
mechanism's shapes, so that it can stand in the mechanism's place in any model (:class:`Replaced`).
"""

import dataclasses
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gpam.attention import functional
from gpam.attention.base import Mechanism

Compute = Callable[[Mechanism, Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another way to compute the mechanism ``of``; None: by its own backend."""

    of: str
    compute: Compute | None


def sdpa(q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, causal: bool, dropout: float) -> Tensor:
    """PyTorch's fused softmax attention, with the cheapest mask it takes."""
    if padding is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    visible = ~padding[:, None, None, :]
    if causal:
        visible = visible & torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=visible, dropout_p=dropout)


def dense_mask(q: Tensor, k: Tensor, padding: Tensor | None, causal: bool) -> Tensor | None:
    """0 and -inf, as fairseq hands them to ``F.multi_head_attention_forward``."""
    mask = q.new_full((q.shape[2], k.shape[2]), float("-inf")).triu(1) if causal else None
    if padding is not None:
        hidden = q.new_zeros(padding.shape).masked_fill(padding, float("-inf"))[:, None, None, :]
        mask = hidden if mask is None else mask + hidden
    return mask


def probabilities(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    """``softmax(Q K^T / sqrt(d) + mask)``, all of it."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return torch.softmax(scores if mask is None else scores + mask, -1)


def _softmax_sdpa(m: Mechanism, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    return sdpa(q, k, v, padding, causal, m.active_dropout)


def _softmax_fairseq(m: Mechanism, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    """What stock fairseq trains with."""
    mask = dense_mask(q, k, padding, causal)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=m.active_dropout)


def _softmax_naive(m: Mechanism, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    return m.dropped(probabilities(q, k, dense_mask(q, k, padding, causal))) @ v


def _dagpam_naive(m: Mechanism, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    """The formula of the paper, every matrix materialised."""
    mask = dense_mask(q, k, padding, causal)
    positive = m.dropped(probabilities(q, k, mask))
    negative = m.dropped(probabilities(m.negative_query(q), m.negative_key(k), mask))
    return (m.weight_pos * positive + m.weight_neg * negative) @ v


def _dagpam_two_calls(m: Mechanism, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    positive = sdpa(q, k, v, padding, causal, m.active_dropout)
    negative = sdpa(m.negative_query(q), m.negative_key(k), v, padding, causal, m.active_dropout)
    return m.weight_pos * positive + m.weight_neg * negative


def _differential_authors(
    m: Mechanism, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, causal: bool
) -> Tensor:
    """As the authors' multihead_diffattn: one batch of all score matrices, neighbouring heads subtracted, RMSNorm."""
    batch, heads, target, head_dim = q.shape
    each = probabilities(q, k, dense_mask(q, k, padding, causal)).unflatten(1, (heads // 2, 2))
    weights = m.dropped(each[:, :, 0] - m.share * each[:, :, 1])
    wide = v.unflatten(1, (heads // 2, 2)).transpose(2, 3).flatten(3)
    out = (1 - m.lambda_init) * m.head_norm(weights @ wide)
    return out.unflatten(3, (2, head_dim)).transpose(2, 3).reshape(batch, heads, target, head_dim)


def _by(backend: str, m: Mechanism, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, causal: bool) -> Tensor:
    """softmax or daGPAM by one backend of ours."""
    queries, weights = (q,), (1.0,)
    if hasattr(m, "negative_query"):
        queries, weights = (q, m.negative_query(q)), (m.weight_pos, m.weight_neg)
    masks = {"key_padding_mask": padding, "causal": causal}
    return functional.sum_of_softmaxes(queries, k, v, weights, backend=backend, dropout=m.active_dropout, **masks)


PEERS = {
    "softmax-sdpa": Peer("softmax", _softmax_sdpa),
    "softmax-fairseq": Peer("softmax", _softmax_fairseq),
    "softmax-naive": Peer("softmax", _softmax_naive),
    "dagpam-naive": Peer("dagpam", _dagpam_naive),
    "dagpam-two-calls": Peer("dagpam", _dagpam_two_calls),
    "differential-authors": Peer("differential", _differential_authors),
}


def backends(device: str) -> dict[str, Peer]:
    """softmax and daGPAM by each backend of ours, whatever would be chosen."""
    one = ("batched", "materialised", "tiled") if device == "cpu" else ("batched", "triton")
    pairs = [(of, backend) for of in ("softmax", "dagpam") for backend in one] + [("dagpam", "grouped")]
    return {f"{of}-{backend}": Peer(of, partial(_by, backend)) for of, backend in pairs}


class Replaced(nn.Module):
    """A mechanism whose output is computed by a peer; its weights, where asked for, by itself."""

    def __init__(self, mechanism: Mechanism, compute: Compute) -> None:
        super().__init__()
        self.mechanism, self._compute = mechanism, compute

    def forward(self, q, k, v, *, key_padding_mask=None, causal=False, need_weights=False, **inputs):
        """As :meth:`Mechanism.forward`."""
        if need_weights:
            masks = {"key_padding_mask": key_padding_mask, "causal": causal}
            return self.mechanism(q, k, v, need_weights=True, **masks, **inputs)
        return self._compute(self.mechanism, q, k, v, key_padding_mask, causal), None

    def set_dropout(self, dropout: float) -> None:
        self.mechanism.set_dropout(dropout)

    def after_heads(self, output: Tensor) -> Tensor:
        return self.mechanism.after_heads(output)
