"""Backend "grouped": one call of PyTorch's grouped-query attention, the branches as query heads that share a key head.

    [O_1, O_2] = SDPA([Q_1, Q_2], K, V),   O = sum_j c_j O_j

The heads are interleaved, as a group of query heads must lie together.  The products are those of a call a branch (14
units for two branches); keys and values are read once, and there is one kernel to launch.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpam.attention.backends.problem import Problem, rows_together
from gpam.attention.backends.sdpa import sdpa
from gpam.errors import UsageError


def grouped(problem: Problem) -> Tensor:
    """``O`` ``[batch, heads, target, d_v]``; a call a branch where branches do not share keys, or with padding."""
    if problem.branches == 1 or len(problem.keys) > 1 or problem.key_padding_mask is not None:
        return sdpa(problem)
    if problem.combined_dropout:
        raise UsageError(
            "backend 'grouped' drops each branch by itself and cannot do dropout_on='combined'; "
            "use backend='auto', or dropout_on='branches'"
        )
    values = problem.values
    if values.is_cuda and values.dtype not in (torch.float16, torch.bfloat16):
        raise UsageError(
            f"backend 'grouped' on a GPU takes float16 and bfloat16, got {values.dtype}: PyTorch has no fused kernel "
            "for it; use backend='auto'"
        )
    queries = torch.stack(problem.queries, 2).flatten(1, 2)
    # On a GPU anything but the flash kernel would be a silent fall to materialised matrices: rather an error.
    kernels = [SDPBackend.FLASH_ATTENTION] if values.is_cuda else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with sdpa_kernel(kernels):
        out = F.scaled_dot_product_attention(
            queries,
            rows_together(problem.keys[0]),
            rows_together(values),
            dropout_p=problem.dropout,
            is_causal=problem.causal,
            enable_gqa=True,
        )
    branches = out.unflatten(1, (-1, problem.branches)).unbind(2)
    total = sum(weight * branch for weight, branch in zip(problem.weights, branches, strict=True))
    return total.to(values.dtype)
