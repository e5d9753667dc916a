"""Cross entropy of a linear output layer by chunks of rows, without the ``[tokens, types]`` matrix.

    logits = X W^T,   nll = sum_i (logsumexp_j logits_ij - logits_i,y_i)
    loss = (1 - eps - e) nll + e sum_ij (logsumexp_k logits_ik - logits_ij),   e = eps / (types - 1)

as fairseq smooths labels (``eps`` 0: ``loss = nll``). With ``p`` the softmax of a row, the gradient of the loss with
respect to its logits is ``p - (1 - eps - e) onehot(y) - e``: the one dense part, ``p``, is multiplied with ``W`` and
``X`` while the chunk is in the cache; the others are rows of ``W`` and ``X`` added once.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gpam.autograd import once_differentiable

CHUNK, GPU_CHUNK = 1 << 20, 1 << 26  # elements of a chunk of logits: 4 MB of float32 fit a processor's cache


def _chunks(hidden: Tensor, weight: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Rows of ``hidden`` and their logits, in memory that the next chunk takes over."""
    rows = max(16, (CHUNK if hidden.device.type == "cpu" else GPU_CHUNK) // len(weight))
    memory = hidden.new_empty(min(rows, len(hidden)), len(weight))
    for first in range(0, len(hidden), rows):
        own = slice(first, min(first + rows, len(hidden)))
        yield own, torch.mm(hidden[own], weight.t(), out=memory[: own.stop - first])


def _normalised(logits: Tensor) -> tuple[Tensor, Tensor]:
    """``exp(logits - max)`` in their place and its sum, ``[rows, 1]``; the log of the softmax's divisor, ``[rows]``."""
    largest = logits.amax(1, keepdim=True)
    total = logits.sub_(largest).exp_().sum(1, keepdim=True)
    return total, total.log().add_(largest).squeeze(1)


@torch.no_grad()
def negative_log_likelihoods(hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """``-ln softmax(hidden weight^T)`` at ``target``: hidden ``[rows, width]``, weight ``[types, width]``, target and
    result ``[rows]``."""
    found = hidden.new_empty(len(hidden))
    for own, logits in _chunks(hidden, weight):
        chosen = logits.gather(1, target[own, None]).squeeze(1)
        found[own] = _normalised(logits)[1].sub_(chosen)
    return found


class _CrossEntropy(torch.autograd.Function):
    """All gradients are made in the forward pass, where the chunks are."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        types = len(weight)
        each = smoothing / (types - 1)
        nll = smooth = hidden.new_zeros((), dtype=torch.float64)
        if wanted:
            grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        for own, logits in _chunks(hidden, weight):
            chosen = logits.gather(1, target[own, None]).squeeze(1)
            sums = logits.sum(1) if smoothing else None
            total, divisor = _normalised(logits)
            nll = nll + (divisor - chosen).sum(dtype=torch.float64)
            if sums is not None:
                smooth = smooth + (divisor * types - sums).sum(dtype=torch.float64)
            if wanted:
                torch.mm(logits, weight, out=grad_hidden[own]).div_(total)
                grad_weight.addmm_(logits.t(), hidden[own] / total)
        if wanted:
            grad_hidden.sub_(weight[target], alpha=1 - smoothing - each)
            grad_weight.index_add_(0, target, hidden, alpha=smoothing + each - 1)
            if smoothing:
                grad_hidden.sub_(weight.sum(0), alpha=each)
                grad_weight.sub_(hidden.sum(0), alpha=each)
            ctx.save_for_backward(grad_hidden, grad_weight, hidden, weight)
        loss = (1 - smoothing - each) * nll + each * smooth
        nll = nll.to(hidden.dtype)
        ctx.mark_non_differentiable(nll)
        return loss.to(hidden.dtype), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight, *_ = ctx.saved_tensors
        return grad_hidden * grad, grad_weight * grad, None, None, None


def cross_entropy(hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """The sums over rows of the loss, smoothed by ``smoothing``, and of the negative log-likelihood, in nats.

    Args:
        hidden: ``[rows, width]``, float32 or float64.
        weight: ``[types, width]``, of an output layer without bias.
        target: int64 ``[rows]``.

    The loss is differentiable once, with respect to hidden and weight.
    """
    wanted = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    return _CrossEntropy.apply(hidden, weight, target, smoothing, wanted)
