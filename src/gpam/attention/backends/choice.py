"""Which backend computes a call: one pure function of its shapes, dtype, device, dropout and number of branches."""

from collections.abc import Sequence

import torch

from gpam.attention.backends.problem import Problem

BACKENDS = ("batched", "compiled", "materialised", "tiled", "packed", "sdpa", "grouped", "reference")
GPU_BACKENDS = ("triton",)  # these run on a GPU only

# Probabilities that a call on a CPU keeps for its backward pass, at most; beyond it recomputes them.
KEPT_BYTES = 150 << 20
# Up to so many of them, with one branch and with more, whole-call products beat tiles, which cost their copies; up to
# as many of rows of at most SHORT keys or queries, where tiles also keep two threads waiting for each other.
BATCHED_BYTES = (4 << 20, 3 << 19)
SHORT, SHORT_BATCHED_BYTES = 64, 16 << 20


def choose_backend(problem: Problem, *, flash: bool, compiled: bool, fastest: Sequence[str] = ()) -> str:
    """The name in ``BACKENDS`` that ``backend="auto"`` stands for.

    ``fastest`` has backends in the order of their times, where this machine was measured (:mod:`.calibration`): for
    float32 on a CPU the first is taken that is there and keeps no more than it may. Otherwise:

    Measured on one core of an AMD Zen 5 (AVX-512), float32, forward and backward, as ratios of times to one call of
    PyTorch's ``scaled_dot_product_attention`` (heads of 64, lengths 30 to 4096):

    - Two branches: two calls of it cost 2.0 to 2.9.  "materialised" costs 1.0 to 1.7, "tiled" 1.1 to 2.0 and keeps
      nothing: the choice between them is one of memory, ``KEPT_BYTES``.
    - One branch: "materialised" costs 0.7 to 1.0 up to 64 rows and, causal, up to 1024.  Beyond, PyTorch's kernel
      is as fast or faster and keeps nothing.
    - Where the compiled library is there (``compiled``), it takes 0.4 to 0.7 of the time of "materialised" (one core of
      an AMD Zen 4, two branches, lengths 14 to 512), as long as "batched" or less at 12 to 64 rows (0.6 to 1.1), and
      keeps as much up to a bound of its own.
    - Without it, small calls, such as a laptop's batch of sentences: "batched" takes half to nine tenths of the time of
      "materialised", as their time is that of copies and calls.  With two threads that holds for short rows of any
      batch that fits into the cache (136 sentences of 30 tokens: 0.75), with one thread they are on a par there.
    - With dropout and with values of another width than the queries PyTorch has no fused kernel on a CPU, and in
      bfloat16 its backward pass takes 2 to 4 times as long as a materialised one: never "sdpa".

    - One query a sequence (decoding), branches that share keys: "packed" reads keys and values once.

    Off the CPU: PyTorch's own fused kernels.  "grouped" takes two branches in one call where its flash kernel can
    (``flash``, shared keys, no padding), else "sdpa" makes a call a branch; neither can drop the sum of two
    branches, so that case is left to "reference".  "triton" is never chosen: it has not been timed on a GPU yet.
    """
    batch, heads, target, head_dim = problem.queries[0].shape
    source, values, branches, causal = problem.source, problem.values, problem.branches, problem.causal
    shared_keys, padded = len(problem.keys) == 1, problem.key_padding_mask is not None
    if target == 1 and branches > 1 and shared_keys:
        return "packed"
    if values.device.type != "cpu":
        if problem.combined_dropout:
            return "reference"
        return "grouped" if branches > 1 and shared_keys and flash and not padded else "sdpa"
    one_width = head_dim == values.shape[-1]
    sdpa_is_fused = problem.dropout == 0 and one_width and values.dtype in (torch.float32, torch.float64)
    seen = target * source // 2 if causal else target * source
    kept_bytes = branches * batch * heads * seen * values.dtype.itemsize
    batched = kept_bytes <= (SHORT_BATCHED_BYTES if min(target, source) <= SHORT else BATCHED_BYTES[branches > 1])
    if values.dtype == torch.float32:
        fits = {
            "batched": kept_bytes <= SHORT_BATCHED_BYTES,
            "materialised": kept_bytes <= KEPT_BYTES,
            "compiled": compiled,
            "sdpa": sdpa_is_fused and not padded,
        }
        for name in fastest:
            if fits.get(name):
                return name
    short = min(target, source) <= SHORT or (causal and target <= 1024)
    if branches == 1 and sdpa_is_fused and not short:
        return "sdpa"
    if compiled:
        return "compiled"
    if batched:
        return "batched"
    return "materialised" if kept_bytes <= KEPT_BYTES else "tiled"
