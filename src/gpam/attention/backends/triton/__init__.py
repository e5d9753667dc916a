"""Backend "triton": one or two softmaxes in one pass over keys and values, on a GPU.

    O = sum_j c_j P_j V,   P_j = softmax(Q_j K_j^T / sqrt(d) + mask)

``kernels_long`` streams over blocks of keys with a running maximum and sum a branch (4 products forward, 8 backward for
two branches; keeps O_j and the log-sum-exp of each). ``kernels_short`` holds whole rows of at most ``SHORT`` keys and
combines the P_j before the product with V (3 and 8 products; keeps nothing but the inputs). triton is imported when the
backend is first used.
"""

from torch import Tensor

from gpam.attention.backends.problem import Problem


def fused(problem: Problem) -> Tensor:
    """``O`` ``[batch, heads, target, d_v]``; raises UsageError for what the kernels cannot do."""
    from gpam.attention.backends.triton.launch import attention

    return attention(problem)
