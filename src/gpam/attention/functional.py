"""The attention core as functions: a weighted sum of softmaxes, exact and fast, forward and backward.

    O = sum_j c_j P_j V,        P_j = softmax(Q_j K_j^T / sqrt(d) + mask)

daGPAM is the case of two branches with the weights ``(1 + lambda_pos, -lambda_neg)`` (:func:`dual_softmax`), softmax
attention the case of one (:func:`softmax_attention`).  All functions take ``[batch, heads, length, head_dim]`` tensors
of any strides in float64, float32, bfloat16 or float16, and return the output in the layout of the first query where
that is free.  A query that sees no key has zero output and passes no gradient.  Double backward is not offered by the
fused backends: it raises an error.  Nor are batched gradients (``is_grads_batched``, ``vectorize=True``), of which
PyTorch complains: use backend="reference".  ``torch.func`` gets the plain formula, which has every derivative.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gpam.attention.backends import calibration
from gpam.attention.backends.batched import batched
from gpam.attention.backends.choice import BACKENDS, GPU_BACKENDS, choose_backend
from gpam.attention.backends.compiled import compiled, takes
from gpam.attention.backends.formula import reference
from gpam.attention.backends.grouped import grouped
from gpam.attention.backends.packed import packed
from gpam.attention.backends.problem import Problem, Weight, make_problem
from gpam.attention.backends.sdpa import sdpa
from gpam.attention.backends.tiled import materialised, tiled
from gpam.attention.backends.triton import fused
from gpam.errors import UsageError, did_you_mean
from gpam.tracing import casts, in_autocasts_dtype, is_transformed, runs_as_called, without_autocast

__all__ = [
    "BACKENDS",
    "GPU_BACKENDS",
    "checked_backend",
    "choose_backend",
    "dual_softmax",
    "softmax_attention",
    "sum_of_softmaxes",
]

_RUN: dict[str, Callable[[Problem], Tensor]] = {
    "batched": batched,
    "compiled": compiled,
    "materialised": materialised,
    "tiled": tiled,
    "packed": packed,
    "sdpa": sdpa,
    "grouped": grouped,
    "triton": fused,
    "reference": reference,
}


def dual_softmax(
    q: Tensor, q_neg: Tensor, k: Tensor, v: Tensor, weight_pos: Weight, weight_neg: Weight, **options: Any
) -> Tensor:
    """Dual softmax attention ``(weight_pos P+ - weight_neg P-) V`` with shared keys and values.

    ``P+ = softmax(q k^T / sqrt(d) + mask)``, ``P- = softmax(q_neg k^T / sqrt(d) + mask)``; daGPAM (arXiv 2410.15578)
    is ``weight_pos = 1 + lambda_pos``, ``weight_neg = lambda_neg``. ``options`` (masks, dropout,
    backend) as in :func:`sum_of_softmaxes`.
    """
    return sum_of_softmaxes((q, q_neg), k, v, (weight_pos, -weight_neg), **options)


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """Softmax attention ``softmax(q k^T / sqrt(d) + mask) V``; ``options`` as in :func:`sum_of_softmaxes`."""
    return sum_of_softmaxes((q,), k, v, (1.0,), **options)


def sum_of_softmaxes(
    queries: Sequence[Tensor],
    keys: Tensor | Sequence[Tensor],
    v: Tensor,
    weights: Sequence[Weight],
    *,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
    attn_mask: Tensor | None = None,
    dropout: float = 0.0,
    dropout_on: str = "branches",
    backend: str = "auto",
) -> Tensor:
    """``sum_j c_j softmax(Q_j K_j^T / sqrt(d) + mask) V`` over any number of branches j.

    Args:
        queries: one ``[batch, heads, target, head_dim]`` tensor a branch.
        keys: one ``[batch, heads, source, head_dim]`` tensor for all branches, or one a branch (differential
            attention, arXiv 2410.05258).
        v: ``[batch, heads, source, value_dim]``.
        weights: the ``c_j`` with their signs, each a number, a 0-dim tensor, a ``[heads]`` tensor, or a tensor
            broadcastable to ``[batch, heads, target, 1]``; gradients flow where they are required.
        key_padding_mask: bool ``[batch, source]``, True = padding.
        causal: the targets are the last positions of the source, and see none behind their own.
        attn_mask: broadcastable to ``[batch, heads, target, source]``: bool, True = hidden, or floats that are added to
            the scores.  It, and causal targets that are fewer than the sources, go through "sdpa" or "reference".
        dropout: probability; the caller passes 0 in evaluation.
        dropout_on: "branches" draws one mask for each branch, "combined" one for their weighted sum.  They are
            different models.  What is dropped follows from torch's global generator.
        backend: "auto" (see :func:`choose_backend`) or a name in ``BACKENDS`` or ``GPU_BACKENDS``.

    Returns:
        ``[batch, heads, target, value_dim]``.

    Raises:
        UsageError: shapes, dtypes or options that do not fit together.

    Under autocast everything is computed in its dtype, as by PyTorch's own attention.

    A branch whose query is zero averages the visible values: ``A - uniform`` ("centred" attention) is the weights
    ``(1, -1)`` with a second query of zeros.
    """
    device = v.device.type
    if casts(device):
        keys = (keys,) if isinstance(keys, Tensor) else keys
        *tensors, v = in_autocasts_dtype(*queries, *keys, v)
        queries, keys = tensors[: len(queries)], tensors[len(queries) :]
    with without_autocast(device):
        problem = make_problem(
            queries,
            keys,
            v,
            weights,
            key_padding_mask=key_padding_mask,
            causal=causal,
            attn_mask=attn_mask,
            dropout=dropout,
            dropout_on=dropout_on,
        )
        return _RUN[_resolve(backend, problem)](problem)


def _resolve(backend: str, problem: Problem) -> str:
    checked_backend(backend)
    if 0 in (problem.values.shape[0], problem.target, problem.source):  # nothing to compute
        return "reference"
    if problem.square and runs_as_called() and problem.in_memory:
        return _fastest(problem) if backend == "auto" else backend
    # What the other backends do not know: masks of any form, being recorded, torch.func, and other kinds of tensor.
    if backend in ("sdpa", "reference"):
        return backend
    if not problem.square and backend != "auto":
        raise UsageError(
            f"backend {backend!r} takes key_padding_mask and causal squares only: got an attn_mask, or causal targets "
            "fewer than the sources; use backend='auto', 'sdpa' or 'reference'"
        )
    return "reference" if problem.combined_dropout or is_transformed() else "sdpa"


def _fastest(problem: Problem) -> str:
    chosen_by = calibration.current()
    kind = calibration.kind(
        branches=problem.branches,
        target=problem.target,
        source=problem.source,
        causal=problem.causal,
        dropout=problem.dropout,
    )
    return choose_backend(
        problem,
        flash=_has_flash(problem),
        compiled=chosen_by.library is not None and takes(problem),
        fastest=chosen_by.fastest.get(kind, ()),
    )


def _has_flash(problem: Problem) -> bool:
    """Whether PyTorch's flash kernel takes these tensors: GPUs from compute capability 8.0, half precision, heads of
    one width of at most 192 (more, on some of these GPUs, without gradients alone)."""
    values = problem.values
    if values.device.type != "cuda" or values.dtype not in (torch.float16, torch.bfloat16):
        return False
    head_dim = problem.queries[0].shape[-1]
    fits = head_dim == values.shape[-1] <= 192 and torch.cuda.get_device_capability(values.device) >= (8, 0)
    return fits and torch.backends.cuda.is_flash_attention_available()


def checked_backend(backend: str) -> None:
    """UsageError where ``backend`` is neither "auto" nor a name in ``BACKENDS`` or ``GPU_BACKENDS``."""
    if backend != "auto" and backend not in _RUN:
        raise UsageError(
            f"backend must be auto or one of {', '.join(_RUN)}, got {backend!r}{did_you_mean(backend, ('auto', *_RUN))}"
        )
