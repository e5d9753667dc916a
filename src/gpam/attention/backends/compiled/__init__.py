"""Backend "compiled": the algebra of ``tiled``, with one pass of C over each row between the products (``rows.c``).

    P = sum_j c_j P_j,   O = P V
    dV = P^T dO,   G = dO V^T,   T_j = c_j P_j * (G - rowsum(P_j * G)),   dQ_j = s T_j K,   dK = s sum_j T_j^T Q_j

Softmax, dropout and weighted sum, and backward their gradients, take PyTorch's operators a dozen passes over matrices;
here they are one each, over the keys that a row sees. Products are PyTorch's. float32 on a CPU; anything else, and a
machine without the library, is left to "materialised".
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from gpam.attention.backends.compiled.library import Tile, dropout_numbers, load
from gpam.attention.backends.problem import Problem
from gpam.attention.backends.tiled import materialised
from gpam.attention.backends.tiling import RowBlock, padded
from gpam.attention.backends.workspace import POOL
from gpam.autograd import once_differentiable

ROWS = 64  # of a tile, for causal rows, which see no key beyond it
TILE_BYTES = 2 << 20  # of the scores of a tile, for each thread: little enough to stay in the cache
KEPT_BYTES = 150 << 20  # of probabilities that a call keeps for its backward pass; beyond it computes them again


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
        combined=problem.dropout_on == "combined",
        keep=torch.is_grad_enabled(),
    )
    weights = problem.weights.to(torch.float32)
    tensors = (problem.values, *problem.queries, *problem.keys)
    return _Compiled.apply(options, problem.key_padding_mask, weights, *tensors)


@dataclass(frozen=True)
class _Options:
    branches: int
    causal: bool
    dropout: float
    combined: bool
    keep: bool

    def split(self, tensors: tuple) -> tuple:
        """values, queries, keys: the order of the arguments of ``apply``."""
        return tensors[0], tensors[1 : 1 + self.branches], tensors[1 + self.branches :]


class _Call:
    """What the forward and the backward pass of one call share: inputs in the order of the products, and the tiles.

    Heads of all sequences are numbered through. A tile holds the scores of some rows of some heads, ``[heads, branches,
    rows, width]`` where branches share keys and one product makes them, else ``[branches, heads, rows, width]``.
    """

    def __init__(self, options: _Options, padding: Tensor | None, weights: Tensor, tensors: tuple, seed: int):
        self.options, self.library = options, load()
        self.values, self.queries, self.keys = options.split(tensors)
        self.batch, self.heads, self.target, self.head_dim = self.queries[0].shape
        self.source, self.value_dim = self.values.shape[2:]
        self.scale, self.all_heads = self.head_dim**-0.5, self.batch * self.heads
        self.width = padded(self.source)
        self.shared = len(self.keys) == 1
        rows = ROWS if options.causal else self.target
        rows = min(rows, max(32, TILE_BYTES // (4 * options.branches * self.width)))
        self.blocks = [
            RowBlock(start, min(start + rows, self.target), min(padded(start + rows), self.width))
            if options.causal
            else RowBlock(start, min(start + rows, self.target), self.width)
            for start in range(0, self.target, rows)
        ]
        bytes_a_head = 4 * options.branches * max(block.count * block.width for block in self.blocks)
        self.chunk = min(self.all_heads, max(1, TILE_BYTES // bytes_a_head) * torch.get_num_threads())
        self.kept = sum(block.count * block.width for block in self.blocks) * options.branches * self.all_heads
        self.weights = weights.flatten(1, 2).contiguous()  # [branches, all heads, rows or 1, 1]
        self.per_row = weights.shape[3] > 1
        self.hidden = None
        if padding is not None:
            self.hidden = torch.ones(self.batch, self.width, dtype=torch.uint8)
            self.hidden[:, : self.source] = padding
        threshold, kept_scale = dropout_numbers(options.dropout)
        self.tile_of_all = {
            "branches": options.branches,
            "source": self.source,
            "weight_branch": self.weights.stride(0),
            "weight_head": self.weights.stride(1),
            "weight_row": int(self.per_row),
            "sequence_heads": self.heads,
            "hidden_width": self.width,
            "causal": options.causal,
            "combined": options.combined,
            "seed": seed,
            "threshold": threshold,
            "kept_scale": kept_scale,
        }

    def rows_of(self, name: str, tensor: Tensor, width: int) -> Tensor:
        """``[batch, heads, length, d]`` as ``[all heads, width, d]``, zero beyond its length."""
        length, last = tensor.shape[2:]
        rows = _memory(name, self.all_heads, width, last)
        rows.view(self.batch, self.heads, width, last)[:, :, :length].copy_(tensor)
        if width > length:
            rows[:, length:].zero_()
        return rows

    def query_rows(self) -> list[Tensor]:
        """For every block the queries times ``scale``, in the order of the scores: ``[.., .., rows, d]``."""
        found = []
        for number, block in enumerate(self.blocks):
            rows = _memory(f"query{number}", *self.order(self.all_heads), block.count, self.head_dim)
            for branch, query in enumerate(self.queries):
                part = query[:, :, block.start : block.stop]
                torch.mul(part, self.scale, out=self.of_branch(rows, branch).unflatten(0, (self.batch, self.heads)))
            found.append(rows)
        return found

    def order(self, heads: int) -> tuple[int, int]:
        return (heads, self.options.branches) if self.shared else (self.options.branches, heads)

    def of_branch(self, rows: Tensor, branch: int) -> Tensor:
        """``[heads, rows, ..]`` of what lies in the order of the scores."""
        return rows[:, branch] if self.shared else rows[branch]

    def products(self, rows: Tensor, first: int, heads: int) -> list[Tensor]:
        """Views of ``rows``, in the order of the scores, of some heads: one ``[heads, rows, ..]`` a product."""
        if self.shared:
            return [rows[first : first + heads].flatten(1, 2)]
        return [branch[first : first + heads] for branch in rows]

    def tiles(self, block: RowBlock, first: int, heads: int):
        """The :class:`Tile` of some heads for each thread, with the first of them."""
        per_branch = block.count * block.width
        strides = (self.options.branches * per_branch, per_branch) if self.shared else (per_branch, heads * per_branch)
        share = -(-heads // torch.get_num_threads())
        for start in range(0, heads, share):
            yield (
                start,
                Tile(
                    heads=min(share, heads - start),
                    rows=block.count,
                    width=block.width,
                    head_stride=strides[0],
                    branch_stride=strides[1],
                    first=block.start,
                    first_head=first + start,
                    **self.tile_of_all,
                ),
            )

    def probabilities(self, block: RowBlock, first: int, heads: int, query: Tensor, keys: list[Tensor], into: Tensor):
        """Fill ``into`` with the signed probabilities of a tile; returns ``P`` ``[heads, rows, width]``."""
        scores = into.view(*self.order(heads), block.count, block.width)
        for out, rows, key in zip(
            self.products(scores, 0, heads), self.products(query, first, heads), keys, strict=True
        ):
            torch.bmm(rows, key[first : first + heads, : block.width].transpose(1, 2), out=out)
        combined = _memory("combined", heads, block.count, block.width)

        def run(start: int, tile: Tile) -> None:
            self.library.gpam_forward(
                tile,
                scores.data_ptr() + 4 * start * tile.head_stride,
                combined.data_ptr() + 4 * start * block.count * block.width,
                self.weights.data_ptr(),
                None if self.hidden is None else self.hidden.data_ptr(),
            )

        _on_threads(run, self.tiles(block, first, heads))
        return combined

    def grad_scores(
        self, block: RowBlock, first: int, heads: int, scores: Tensor, grad: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of the scores, in their order, times their weights; ``P``; the ``delta_j`` ``[heads, branches,
        rows]``."""
        found = _memory("grad_scores", *self.order(heads), block.count, block.width)
        combined = _memory("combined", heads, block.count, block.width)
        deltas = _memory("deltas", heads, self.options.branches, block.count)

        def run(start: int, tile: Tile) -> None:
            at, of_sum = 4 * start * tile.head_stride, 4 * start * block.count * block.width
            self.library.gpam_backward(
                tile,
                scores.data_ptr() + at,
                grad.data_ptr() + of_sum,
                found.data_ptr() + at,
                combined.data_ptr() + of_sum,
                self.weights.data_ptr(),
                deltas.data_ptr() + 4 * start * self.options.branches * block.count,
            )

        _on_threads(run, self.tiles(block, first, heads))
        return found, combined, deltas


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options: _Options, padding: Tensor | None, weights: Tensor, *tensors: Tensor) -> Tensor:
        seed = int(torch.empty((), dtype=torch.int64).random_()) if options.dropout > 0 else 0
        call = _Call(options, padding, weights, tensors, seed)
        like = call.queries[0]
        out = torch.empty_like(like[..., :1].expand(*like.shape[:3], call.value_dim))
        keep = options.keep and 4 * call.kept <= KEPT_BYTES
        kept = out.new_empty(call.kept if keep else 0)
        keys = [call.rows_of(f"key{i}", key, call.width) for i, key in enumerate(call.keys)]
        values = call.rows_of("value", call.values, call.width)
        position = 0
        for block, query in zip(call.blocks, call.query_rows(), strict=True):
            rows = _memory("out", call.all_heads, block.count, call.value_dim)
            for first in range(0, call.all_heads, call.chunk):
                heads = min(call.chunk, call.all_heads - first)
                size = heads * options.branches * block.count * block.width
                scores = kept[position : position + size] if keep else _memory("scores", size)
                combined = call.probabilities(block, first, heads, query, keys, scores)
                torch.bmm(combined, values[first : first + heads, : block.width], out=rows[first : first + heads])
                position += size
            out[:, :, block.start : block.stop].copy_(rows.unflatten(0, (call.batch, call.heads)))
        ctx.options, ctx.seed, ctx.inputs = options, seed, len(tensors)
        ctx.save_for_backward(padding, weights, *tensors, *([kept] if keep else []))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        options = ctx.options
        padding, weights, *saved = ctx.saved_tensors
        call = _Call(options, padding, weights, tuple(saved[: ctx.inputs]), ctx.seed)
        kept = saved[ctx.inputs] if len(saved) > ctx.inputs else None
        keys = [call.rows_of(f"key{i}", key, call.width) for i, key in enumerate(call.keys)]
        values = call.rows_of("value", call.values, call.width)
        queries = call.query_rows()
        grads = [torch.empty_like(tensor) for tensor in saved[: ctx.inputs]]
        grad_values, grad_queries, grad_keys = options.split(grads)
        grad_weights = torch.zeros_like(call.weights)
        sums = [
            _memory(f"grad{i}", call.all_heads, call.width, tensor.shape[-1])
            for i, tensor in enumerate((*call.keys, call.values))
        ]
        position = call.kept
        for number in reversed(range(len(call.blocks))):  # the first is as wide as any
            block, query, last = call.blocks[number], queries[number], number == len(call.blocks) - 1
            grad_rows = _memory("grad_rows", call.all_heads, block.count, call.value_dim)
            grad_rows.unflatten(0, (call.batch, call.heads)).copy_(grad_out[:, :, block.start : block.stop])
            grad_query = _memory("grad_query", *call.order(call.all_heads), block.count, call.head_dim)
            per_head = options.branches * block.count * block.width
            position -= per_head * call.all_heads
            for first in range(0, call.all_heads, call.chunk):
                heads = min(call.chunk, call.all_heads - first)
                own = slice(first, first + heads)
                size = heads * per_head
                if kept is None:
                    scores = _memory("scores", size)
                    call.probabilities(block, first, heads, query, keys, scores)
                else:
                    at = position + first * per_head
                    scores = kept[at : at + size]
                rows = grad_rows[own]
                grad = _memory("grad_products", heads, block.count, block.width)
                torch.bmm(rows, values[own, : block.width].transpose(1, 2), out=grad)
                found, combined, deltas = call.grad_scores(block, first, heads, scores, grad)
                _add_product(sums[-1][own], combined, rows, first_block=last)
                for part, out, of_query, key, total in zip(
                    call.products(found, 0, heads),
                    call.products(grad_query, first, heads),
                    call.products(query, first, heads),
                    keys,
                    sums[:-1],
                    strict=True,
                ):
                    torch.bmm(part, key[own, : block.width], out=out)
                    _add_product(total[own], part, of_query, first_block=last)
                if ctx.needs_input_grad[2]:
                    deltas = deltas.transpose(0, 1).unsqueeze(-1)
                    if call.per_row:
                        grad_weights[:, own, block.start : block.stop] = deltas
                    else:
                        grad_weights[:, own] += deltas.sum(2, keepdim=True)
            for branch, out in enumerate(grad_queries):
                part = call.of_branch(grad_query, branch).unflatten(0, (call.batch, call.heads))
                torch.mul(part, call.scale, out=out[:, :, block.start : block.stop])
        for total, out in zip(sums, (*grad_keys, grad_values), strict=True):
            out.copy_(total[:, : call.source].unflatten(0, (call.batch, call.heads)))
        return None, None, grad_weights.unflatten(1, weights.shape[1:3]), *grads


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, first_block: bool) -> None:
    """Add ``left^T right`` to the first rows of ``total``, or put it there."""
    left, width = left.transpose(1, 2), left.shape[-1]
    if first_block:
        torch.bmm(left, right, out=total)
    else:
        part = _memory("part", len(total), width, right.shape[-1])
        total[:, :width].add_(torch.bmm(left, right, out=part))


def _memory(name: str, *shape: int) -> Tensor:
    """Memory of the thread, kept from call to call."""
    size = math.prod(shape)
    return POOL.take(f"compiled_{name}", size, torch.float32, torch.device("cpu"))[:size].view(shape)


def _on_threads(run: Callable[[int, Tile], None], tiles) -> None:
    tiles = list(tiles)
    if len(tiles) == 1:
        run(*tiles[0])
    else:
        list(_threads(len(tiles)).map(lambda tile: run(*tile), tiles))


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "gpam-attention")
