"""A call of the attention core that is described and not made: its shapes, dtype and device without a tensor."""

from types import SimpleNamespace

import torch

from gpam.attention.backends.problem import Problem


def described(
    *, batch, heads, target, source, branches, head_dim=64, value_dim=64, causal=False, dropout=0.0,
    dropout_on="branches", dtype=torch.float32, device="cpu", shared_keys=True, padded=False,
):  # fmt: skip
    query, key = (SimpleNamespace(shape=(batch, heads, length, head_dim)) for length in (target, source))
    values = SimpleNamespace(shape=(batch, heads, source, value_dim), dtype=dtype, device=torch.device(device))
    return Problem(
        queries=(query,) * branches,
        keys=(key,) * (1 if shared_keys else branches),
        values=values,
        weights=None,
        key_padding_mask=torch.zeros(1, 1, dtype=torch.bool) if padded else None,
        causal=causal,
        attn_mask=None,
        dropout=dropout,
        dropout_on=dropout_on,
        plain=False,
    )
