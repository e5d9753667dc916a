"""Backend "sdpa": one call of PyTorch's fused softmax attention a branch, weighted and summed."""

import torch
from torch import Tensor
from torch.nn import functional as F

from gpam.attention.backends.masks import hidden_rows, visible_keys
from gpam.attention.backends.problem import Problem
from gpam.errors import UsageError


def sdpa(problem: Problem) -> Tensor:
    """``sum_j c_j SDPA(Q_j, K_j, V)`` -> ``[batch, heads, target, d_v]``; dropout falls on each branch."""
    if problem.dropout > 0 and problem.dropout_on == "combined" and problem.branches > 1:
        raise UsageError(
            "backend 'sdpa' drops each branch by itself and cannot do dropout_on='combined'; "
            "use backend='auto', or dropout_on='branches'"
        )
    padding, values = problem.key_padding_mask, problem.values
    hidden, mask = None, None
    if padding is not None:
        hidden = hidden_rows(padding, problem.causal)[:, None, :, None]
        # Rows that see nothing attend everywhere and are zeroed below, so that no kernel meets a row of only -inf.
        mask = visible_keys(padding, problem.causal, problem.source, values.device) | hidden
    total: Tensor | None = None
    for branch, query in enumerate(problem.queries):
        out = F.scaled_dot_product_attention(
            query,
            problem.key(branch),
            values,
            attn_mask=mask,
            dropout_p=problem.dropout,
            is_causal=problem.causal and mask is None,
        )
        weighted = problem.weights[branch].to(out.dtype) * out
        total = weighted if total is None else total + weighted
    if hidden is not None and (hidden.is_cuda or bool(hidden.any())):  # asking a GPU would wait for it
        total = torch.where(hidden, total.new_zeros(()), total)
    return total
