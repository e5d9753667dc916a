"""Backend "sdpa": one call of PyTorch's fused softmax attention a branch, weighted and summed."""

from torch import Tensor
from torch.nn import functional as F

from gpam.attention.backends.masks import bias_of, within_range
from gpam.attention.backends.problem import Problem
from gpam.errors import UsageError


def sdpa(problem: Problem) -> Tensor:
    """``sum_j c_j SDPA(Q_j, K_j, V)`` -> ``[batch, heads, target, d_v]``; dropout falls on each branch."""
    if problem.combined_dropout:
        raise UsageError(
            "backend 'sdpa' drops each branch by itself and cannot do dropout_on='combined'; "
            "use backend='auto', or dropout_on='branches'"
        )
    hidden, mask = None, None
    if problem.key_padding_mask is not None or not problem.square:
        visible = problem.visible()
        hidden = ~visible.any(-1, keepdim=True)
        # Rows that see nothing attend everywhere and are zeroed below, so that no kernel meets a row of only -inf.
        mask = visible | hidden
        if (bias := bias_of(problem.attn_mask)) is not None:
            mask = within_range(bias, problem.values.dtype).masked_fill(~mask, float("-inf"))
    total: Tensor | None = None
    for branch, query in enumerate(problem.queries):
        out = F.scaled_dot_product_attention(
            query,
            problem.key(branch),
            problem.values,
            attn_mask=mask,
            dropout_p=problem.dropout,
            is_causal=problem.causal and mask is None,
        )
        weighted = out if problem.plain else problem.weights[branch] * out
        total = weighted if total is None else total + weighted
    total = total.to(problem.values.dtype)
    return total if hidden is None else total.masked_fill(hidden, 0.0)
