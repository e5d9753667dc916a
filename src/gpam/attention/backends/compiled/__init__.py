"""Backend "compiled": whole heads in C (``attention.c``), products included, in the cache of one thread.

    P = sum_j c_j P_j,   O = P V
    dV = P^T dO,   G = dO V^T,   T_j = c_j P_j * (G - rowsum(P_j * G)),   dQ_j = s T_j K,   dK = s sum_j T_j^T Q_j

Softmax, dropout and weighted sum, and backward their gradients, take PyTorch's operators a dozen passes over matrices,
and short rows cost more in copies and calls than in work. Here a block of rows is computed from scores to output while
it is in the cache, over the keys that it sees. float32 on a CPU; anything else, and a machine without the library, is
left to "materialised".
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from gpam.attention.backends.choice import KEPT_BYTES
from gpam.attention.backends.compiled.library import Call, dropout_numbers, load, rows
from gpam.attention.backends.dropout import drawn_seed
from gpam.attention.backends.problem import Problem, rows_together
from gpam.attention.backends.tiled import materialised
from gpam.attention.backends.tiling import padded
from gpam.attention.backends.workspace import POOL
from gpam.autograd import once_differentiable


def takes(problem: Problem) -> bool:
    """Whether the call is one for the library, and that is there."""
    values = problem.values
    return values.dtype == torch.float32 and values.device.type == "cpu" and load() is not None


def compiled(problem: Problem) -> Tensor:
    """``O`` ``[batch, heads, target, d_v]``."""
    if not takes(problem):
        return materialised(problem)
    options = _Options(
        branches=problem.branches,
        causal=problem.causal,
        dropout=problem.dropout,
        combined=problem.combined_dropout,
        scale=problem.scale,
        keep=torch.is_grad_enabled(),
    )
    weights = problem.weights.to(torch.float32)
    tensors = [rows_together(tensor) for tensor in (problem.values, *problem.queries, *problem.keys)]
    return _Compiled.apply(options, problem.key_padding_mask, weights, *tensors)


@dataclass(frozen=True)
class _Options:
    branches: int
    causal: bool
    dropout: float
    combined: bool
    scale: float
    keep: bool


class _Work:
    """What the library is told of a call; forward and backward are the same but for the tensors.

    ``tensors``: values, queries, keys. Threads share the heads of all sequences.
    """

    def __init__(
        self, options: _Options, padding: Tensor | None, weights: Tensor, tensors: Sequence[Tensor], seed: int
    ) -> None:
        values, query = tensors[:2]
        batch, heads, target, head_dim = query.shape
        self.weights = weights.flatten(1, 2).contiguous()  # [branches, heads of all sequences, rows or 1, 1]
        self.hidden = None
        if padding is not None:
            self.hidden = torch.ones(batch, padded(padding.shape[1]), dtype=torch.uint8, device="cpu")
            self.hidden[:, : padding.shape[1]] = padding
        self.tensors, self._rows = tensors, rows(*tensors)
        threshold, kept_scale = dropout_numbers(options.dropout)
        self.call = Call(
            heads=batch * heads,
            sequence_heads=heads,
            branches=options.branches,
            keys=len(tensors) - 1 - options.branches,
            target=target,
            source=values.shape[2],
            head_dim=head_dim,
            value_dim=values.shape[3],
            weight_branch=self.weights.stride(0),
            weight_head=self.weights.stride(1),
            weight_row=int(weights.shape[3] > 1),
            hidden_width=0 if self.hidden is None else self.hidden.shape[1],
            causal=options.causal,
            combined=options.combined,
            seed=seed,
            threshold=threshold,
            kept_scale=kept_scale,
            scale=options.scale,
        )
        #: Probabilities of a head that are kept for the backward pass.
        self.kept_by_head = load().gpam_kept(self.call)

    def forward(self, out: Tensor, kept: Tensor | None) -> None:
        """Write ``O``, and the signed probabilities that the backward pass takes."""
        of_out = rows(out)

        def run(part: Call) -> None:
            load().gpam_forward(part, *self._inputs(part), of_out, self._kept(part, kept))

        self._on_threads(run)

    def backward(self, grad_out: Tensor, kept: Tensor | None, grads: Sequence[Tensor]) -> Tensor:
        """Write the gradients of ``tensors``; returns those of the weights, ``[branches, all heads, target]``."""
        of_out, of_grads = rows(grad_out), rows(*grads)
        deltas = grad_out.new_empty(self.call.heads, self.call.branches, self.call.target)

        def run(part: Call) -> None:
            own = deltas[part.first_head].data_ptr()
            load().gpam_backward(part, *self._inputs(part), of_out, self._kept(part, kept), of_grads, own)

        self._on_threads(run)
        return deltas.transpose(0, 1)

    def _inputs(self, part: Call) -> tuple:
        memory = POOL.take("compiled", load().gpam_memory(part), torch.float32, torch.device("cpu"))
        hidden = None if self.hidden is None else self.hidden.data_ptr()
        return memory.data_ptr(), self._rows, self.weights.data_ptr(), hidden

    def _kept(self, part: Call, kept: Tensor | None) -> int | None:
        return None if kept is None else kept[part.first_head * self.kept_by_head :].data_ptr()

    def _on_threads(self, run: Callable[[Call], None]) -> None:
        heads, threads = self.call.heads, torch.get_num_threads()
        share = -(-heads // threads)
        parts = []
        for first in range(0, heads, share):
            part = Call.from_buffer_copy(self.call)
            part.first_head, part.heads = first, min(share, heads - first)
            parts.append(part)
        if len(parts) == 1:
            run(parts[0])
        else:
            list(_threads(len(parts)).map(run, parts))


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options: _Options, padding: Tensor | None, weights: Tensor, *tensors: Tensor) -> Tensor:
        seed = drawn_seed() if options.dropout > 0 else 0
        values, query = tensors[:2]
        work = _Work(options, padding, weights, tensors, seed)
        count = work.kept_by_head * work.call.heads
        kept = query.new_empty(count) if options.keep and 4 * count <= KEPT_BYTES else None
        out = _empty_like(query[..., :1].expand(*query.shape[:3], values.shape[3]))
        work.forward(out, kept)
        ctx.options, ctx.seed = options, seed
        ctx.save_for_backward(padding, weights, kept, *tensors)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        padding, weights, kept, *tensors = ctx.saved_tensors
        tensors = [rows_together(tensor) for tensor in tensors]  # a hook may give them back in another order
        kept = None if kept is None else kept.contiguous()
        grads = [_empty_like(tensor) for tensor in tensors]
        deltas = _Work(ctx.options, padding, weights, tensors, ctx.seed).backward(rows_together(grad_out), kept, grads)
        grad_weights = None
        if ctx.needs_input_grad[2]:
            grad_weights = deltas.unsqueeze(-1) if weights.shape[3] > 1 else deltas.sum(2, keepdim=True).unsqueeze(-1)
            grad_weights = grad_weights.unflatten(1, weights.shape[1:3])
        return None, None, grad_weights, *grads


def _empty_like(tensor: Tensor) -> Tensor:
    """With rows in one piece, which torch's own does not promise where numbers of ``tensor`` share memory."""
    made = torch.empty_like(tensor)
    return made if made.stride(-1) == 1 else torch.empty_like(tensor, memory_format=torch.contiguous_format)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "gpam-attention")


os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not live on in it
