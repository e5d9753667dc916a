"""FLOPs of a contender, and the least time ratio to softmax attention that the count of its products allows.

Units are products of target x source x head_dim over all heads of softmax attention. The scores of all branches
together take ``scores`` units, a product with V takes ``values``: softmax (1, 1), two branches (2, 1), differential
attention (1, 1), as its two branches have half the heads and values of double width. :data:`FORMS` are forward and
backward together; docs/performance.md has the numbers.

Forward: the scores, and one product with V, or one a branch. Backward, where ``G = dO V^T`` and ``dV`` are shared:
``G``, ``dV`` (``values`` each), ``dQ``, ``dK`` (``scores`` each), and the scores again unless they were kept. A call a
branch shares nothing. The ratio is to softmax that recomputes its scores (7 units).
"""

from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

FORMS: dict[str, Callable[[float, float, int], float]] = {
    "materialised": lambda scores, values, branches: 3 * scores + 3 * values,
    "row-resident": lambda scores, values, branches: 4 * scores + 3 * values,
    "streaming": lambda scores, values, branches: 4 * scores + (2 + branches) * values,
    "calls": lambda scores, values, branches: 4 * scores + 3 * branches * values,
}
#: Of rows that a GPU's registers hold whole, at most (``kernels_short``, in half precision).
SHORT = 128
#: ``(scores, values, branches)`` of the mechanisms that are sums of softmaxes.
SUMS = {"softmax": (1, 1, 1), "dagpam": (2, 1, 2), "differential": (1, 1, 2)}


def limit(mechanism: str, device_type: str, length: int) -> float | None:
    """The least time ratio to softmax without keeping N x N numbers: row-resident on a CPU and for short rows on a GPU,
    else streaming; ``length`` is that of targets or sources, the larger."""
    if mechanism not in SUMS:
        return None
    form = FORMS["row-resident" if device_type == "cpu" or length <= SHORT else "streaming"]
    return form(*SUMS[mechanism]) / form(*SUMS["softmax"])


def count_flops(work: Callable[[], object]) -> int:
    """FLOPs of the matrix products that run, two a multiply-add, by torch's own formulas; runs ``work`` once.

    PyTorch's fused kernel on a CPU is counted as 2 products forward and 5 backward, with nothing saved by causality;
    kernels that torch does not know count nothing.
    """
    with FlopCounterMode(display=False, custom_mapping=_CPU_KERNEL) as counter:
        work()
    return counter.get_total_flops()


_CPU_KERNEL = {  # torch counts the GPU's kernels alone
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda q, k, v, *_, **__: sdpa_flop_count(q, k, v),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda out, q, k, v, *_, **__: (
        sdpa_backward_flop_count(out, q, k, v)
    ),
}
