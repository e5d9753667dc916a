"""Backends "tiled" and "materialised": the branches are combined before the one product with V.

    P = sum_j c_j P_j,   O = P V
    dV = P^T dO,   G = dO V^T      (both once for all branches)
    delta_j = rowsum(P_j * G),   T_j = P_j * (G - delta_j),   dQ_j = s c_j T_j K_j,   dK_j = s c_j T_j^T Q_j,
    dc_j = delta_j

In units of one N x N x d product, softmax attention takes 2 forward and 5 backward when its scores are recomputed, two
branches with shared keys 3 and 8, two calls of it 4 and 10.  A call is cut into tiles (see ``tiling``) that hold whole
rows of scores, so that every pass over a tile stays in the cache, and causal attention computes no tile of the future.
"tiled" recomputes the ``P_j`` in the backward pass and keeps nothing but the inputs; "materialised" keeps the ``P_j``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpam.attention.backends import tiling
from gpam.attention.backends.dropout import drawn_seed, fill_dropout
from gpam.attention.backends.masks import hidden_rows
from gpam.attention.backends.problem import Problem
from gpam.attention.backends.tiling import LANE, Chunk, RowBlock, chunks, padded, row_blocks
from gpam.attention.backends.workspace import Layout, Stack, Tile, Workspace
from gpam.autograd import once_differentiable

# Elements of a head's tile from which PyTorch's backward of a softmax, a call a head, beats three passes over all.
ONE_PASS = 1 << 17


def tiled(problem: Problem) -> Tensor:
    """Recompute the probabilities in the backward pass: memory linear in the length."""
    return _run(problem, keep=False)


def materialised(problem: Problem) -> Tensor:
    """Keep the probabilities of every branch for the backward pass."""
    return _run(problem, keep=torch.is_grad_enabled())


def _run(problem: Problem, keep: bool) -> Tensor:
    single = problem.branches == 1
    options = _Options(
        layout=Layout(groups=len(problem.keys), members=problem.branches // len(problem.keys)),
        causal=problem.causal,
        dropout=problem.dropout,
        drop_branches=not problem.combined_dropout,
        keep=keep,
        threads=torch.get_num_threads(),
    )
    # A single branch is weighted outside, at the size of O instead of that of P.
    weights = None if single else problem.weights
    out = _SumOfSoftmaxes.apply(
        options, problem.key_padding_mask, weights, problem.values, *problem.queries, *problem.keys
    )
    return (out * problem.weights[0]).to(out.dtype) if single and not problem.plain else out


@dataclass(frozen=True)
class _Options:
    layout: Layout
    causal: bool
    dropout: float
    drop_branches: bool
    keep: bool
    threads: int  # of the forward pass: chunks, and so masks of dropout, are the same in the backward pass

    def split(self, tensors: tuple) -> tuple:
        """values, queries, keys: the order of the arguments of ``apply``."""
        return tensors[0], tensors[1 : 1 + self.layout.branches], tensors[1 + self.layout.branches :]


class _Call:
    """What the forward and the backward pass of one call share: masks, chunks, row blocks, the dropout stream."""

    def __init__(self, options: _Options, padding: Tensor | None, tensors: tuple[Tensor, ...], seed: int | None):
        self.options = options
        self.values, self.queries, self.keys = options.split(tensors)
        self.batch, self.heads, target, head_dim = self.queries[0].shape
        self.source = self.values.shape[2]
        self.scale = head_dim**-0.5
        self.accumulator = torch.promote_types(self.values.dtype, torch.float32)
        self.blocks = row_blocks(target, self.source, options.causal)
        self.generator = None if seed is None else torch.Generator(self.values.device).manual_seed(seed)
        self.future, self.bias, self.hidden = self._masks(padding, target)
        self._workspaces: dict[tuple[int, int], Workspace] = {}

    def _masks(self, padding: Tensor | None, target: int) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """-inf above the diagonal of a block; -inf at padded keys ``[batch, 1, width]``; rows that see nothing."""
        like = {"dtype": self.values.dtype, "device": self.values.device}
        future = bias = hidden = None
        width = padded(self.source)
        if self.options.causal:
            rows = max(block.count for block in self.blocks)
            future = torch.full((rows, rows + LANE), float("-inf"), **like).triu_(1)
        if padding is not None or (width > self.source and not self.options.causal):
            bias = torch.zeros(self.batch, 1, width, **like)
            bias[:, :, self.source :] = float("-inf")
        if padding is not None:
            bias[:, :, : self.source].masked_fill_(padding[:, None], float("-inf"))
            hidden = hidden_rows(padding, self.options.causal)
            hidden = hidden.expand(-1, target) if hidden.any() else None
        return future, bias, hidden

    def chunks(self) -> list[Chunk]:
        head_dim, value_dim = self.queries[0].shape[-1], self.values.shape[-1]
        branches, groups = self.options.layout.branches, self.options.layout.groups
        rows, width = max(block.count for block in self.blocks), self.blocks[0].width
        elements = rows * width * (2 * branches + 1)  # scores, their gradients, the sum
        elements += 2 * width * (groups * head_dim + value_dim)  # keys and values, their gradients
        elements += 2 * rows * (branches * head_dim + value_dim)  # queries, outputs, their gradients
        thread_bytes = tiling.SHORT_CHUNK_BYTES if len(self.blocks) == 1 else tiling.CHUNK_BYTES
        head_bytes = elements * self.values.element_size()
        return chunks(self.batch, self.heads, head_bytes, thread_bytes, self.options.threads)

    def load(self, chunk: Chunk) -> Workspace:
        """The workspace for chunks of this shape, with this chunk's keys and values in it."""
        if chunk.shape not in self._workspaces:
            self._workspaces[chunk.shape] = Workspace(
                layout=self.options.layout,
                chunk_shape=chunk.shape,
                blocks=self.blocks,
                keys=self.keys,
                values=self.values,
                future=self.future,
            )
        workspace = self._workspaces[chunk.shape]
        workspace.load([*(chunk.of(key) for key in self.keys), chunk.of(self.values)])
        return workspace

    def load_queries(self, tile: Tile, chunk: Chunk) -> None:
        for slot, query in zip(tile.query_slots, self.queries, strict=True):
            slot.copy_(chunk.of(query, tile.block))

    def probabilities(self, tile: Tile, chunk: Chunk, scores: Stack) -> None:
        """Fill ``scores`` with the ``P_j`` of a tile."""
        block = tile.block
        for out, query, key in zip(scores.by_group, tile.queries, tile.keys_transposed, strict=True):
            torch.baddbmm(out, query, key, beta=0, alpha=self.scale, out=out)
        if tile.future is not None:
            scores.all[..., block.start :].add_(tile.future)
        if self.bias is not None:
            scores.by_sequence.flatten(2, 4).add_(
                self.bias[chunk.sequence : chunk.sequence + chunk.sequences, :, : block.width]
            )
        torch.softmax(scores.all, -1, out=scores.all)
        if self.hidden is not None:
            hidden = self.hidden[chunk.sequence : chunk.sequence + chunk.sequences, block.start : block.stop]
            scores.by_sequence.masked_fill_(hidden[:, None, None, :, None], 0.0)  # their softmax is NaN

    def noise(self, tile: Tile) -> Tensor | None:
        """Dropout factors 0 and 1/(1-p), for every branch or for their sum."""
        if self.generator is None:
            return None
        noise = tile.noise.all if self.options.drop_branches else tile.noise.by_branch[0]
        return fill_dropout(noise, self.options.dropout, self.generator, tile.random_bits)

    def combine(
        self, tile: Tile, scores: Stack, chunk: Chunk, weights: "_Weights | None", noise: Tensor | None
    ) -> Tensor:
        """``P`` ``[heads, rows, width]``, dropped out."""
        branches = scores.by_branch
        if noise is not None and self.options.drop_branches:
            torch.mul(scores.all, noise, out=tile.product.all)
            branches = tile.product.by_branch
        if weights is None:
            return branches[0]
        first, *others = weights.of(chunk, tile.block)
        out = torch.mul(branches[0], first, out=tile.sum)
        for branch, weight in zip(branches[1:], others, strict=True):
            out.addcmul_(branch, weight)
        return out if noise is None or self.options.drop_branches else out.mul_(noise)

    def grad_scores(self, tile: Tile, scores: Stack, noise: Tensor | None, need_delta: bool) -> Tensor | None:
        """Fill ``tile.product`` with the ``T_j``; returns the ``delta_j`` ``[groups, heads, members, rows, 1]`` if
        they are wanted.
        """
        grad = torch.bmm(tile.grad_rows, tile.values_transposed, out=tile.sum)
        if noise is None and not need_delta and tile.block.count * tile.block.width >= ONE_PASS:
            for branch, outs in zip(scores.by_head, tile.product.by_head, strict=True):
                for rows, probabilities, out in zip(grad.unbind(), branch, outs, strict=True):
                    torch._softmax_backward_data(rows, probabilities, -1, out.dtype, grad_input=out)
            return None
        if noise is not None:
            grad = torch.mul(noise, grad.unsqueeze(1), out=noise) if self.options.drop_branches else grad.mul_(noise)
        each = grad if grad.dim() > 3 else grad.unsqueeze(1)
        out = torch.mul(scores.all, each, out=tile.product.all)
        delta = out.sum(-1, keepdim=True, dtype=self.accumulator)
        out.addcmul_(scores.all, delta.to(out.dtype), value=-1)
        return delta


class _Weights:
    """The weights of a call, of each branch and head; their gradient."""

    def __init__(self, call: _Call, weights: Tensor):
        self._layout = call.options.layout
        self._shape = weights.shape  # [branches, batch, heads, target or 1, 1]
        self._per_row = weights.shape[3] > 1
        self._all = weights.flatten(1, 2)
        self._scaled = self._all * call.scale
        self._grad = weights.new_zeros(self._all.shape)

    def of(self, chunk: Chunk, block: RowBlock) -> Sequence[Tensor]:
        """``c_j`` ``[heads, rows or 1, 1]`` for every branch."""
        return self._part(self._all, chunk, block).unbind()

    def scaled(self, chunk: Chunk, block: RowBlock) -> Tensor:
        """``c_j / sqrt(d)`` ``[groups, heads, members, rows or 1, 1]``."""
        return self._layout.by_group(self._part(self._scaled, chunk, block))

    def add_grad(self, chunk: Chunk, block: RowBlock, delta: Tensor) -> None:
        """Add the ``delta_j`` ``[groups, heads, members, rows, 1]`` of a tile."""
        delta = delta if self._per_row else delta.sum(3, keepdim=True)
        self._part(self._grad, chunk, block).add_(self._layout.by_branch(delta))

    def grad(self) -> Tensor:
        return self._grad.view(self._shape)

    def _part(self, tensor: Tensor, chunk: Chunk, block: RowBlock) -> Tensor:
        part = chunk.of_merged(tensor)
        return part.narrow(2, block.start, block.count) if self._per_row else part


class _SumOfSoftmaxes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, options: _Options, padding: Tensor | None, weights: Tensor | None, *tensors: Tensor) -> Tensor:
        seed = drawn_seed() if options.dropout > 0 else None
        call = _Call(options, padding, tensors, seed)
        like = call.queries[0]
        out = torch.empty_like(like[..., :1].expand(*like.shape[:3], call.values.shape[-1]))
        own_weights = None if weights is None else _Weights(call, weights)
        kept = []
        for chunk in call.chunks():
            workspace = call.load(chunk)
            for tile in workspace.tiles:
                call.load_queries(tile, chunk)
                scores = tile.scores
                if options.keep:
                    kept.append(torch.empty_like(scores.all))
                    scores = workspace.view(kept[-1])
                call.probabilities(tile, chunk, scores)
                combined = call.combine(tile, scores, chunk, own_weights, call.noise(tile))
                torch.bmm(combined, tile.values, out=tile.out)
                chunk.of(out, tile.block).copy_(tile.out_slot)
        ctx.options, ctx.seed, ctx.inputs = options, seed, len(tensors)
        ctx.save_for_backward(padding, weights, *tensors, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        options = ctx.options
        padding, weights, *saved = ctx.saved_tensors
        tensors, kept = tuple(saved[: ctx.inputs]), iter(saved[ctx.inputs :])
        call = _Call(options, padding, tensors, ctx.seed)
        grads = [
            torch.empty_like(tensor) if needed else None
            for tensor, needed in zip(tensors, ctx.needs_input_grad[3:], strict=True)
        ]
        grad_values, grad_queries, grad_keys = options.split(grads)
        own_weights = None if weights is None else _Weights(call, weights)
        need_weights = ctx.needs_input_grad[2]
        for chunk in call.chunks():
            workspace = call.load(chunk)
            *sum_keys, sum_values = workspace.column_sums
            for tile in workspace.tiles:
                first = tile is workspace.tiles[0]
                call.load_queries(tile, chunk)
                tile.grad_rows_slot.copy_(chunk.of(grad_out, tile.block))
                scores = workspace.view(next(kept)) if options.keep else tile.scores
                if not options.keep:
                    call.probabilities(tile, chunk, scores)
                noise = call.noise(tile)
                if grad_values is not None:
                    sum_values.add(call.combine(tile, scores, chunk, own_weights, noise), tile.grad_rows, first=first)
                delta = call.grad_scores(tile, scores, noise, need_weights)
                scale = call.scale
                if own_weights is not None:
                    scale = own_weights.scaled(chunk, tile.block)
                if need_weights:
                    own_weights.add_grad(chunk, tile.block, delta)
                tile.each_query.mul_(scale)
                for group, grad_scores in enumerate(tile.product.by_group):
                    torch.bmm(grad_scores, tile.keys[group], out=tile.grad_queries.by_group[group])
                    if grad_keys[group] is not None:
                        sum_keys[group].add(grad_scores, tile.queries[group], first=first)
                tile.grad_queries.all.mul_(scale)
                for grad, slot in zip(grad_queries, tile.grad_queries.slots, strict=True):
                    if grad is not None:
                        chunk.of(grad, tile.block).copy_(slot)
            for total, grad in zip((*sum_keys, sum_values), (*grad_keys, grad_values), strict=True):
                if grad is not None:
                    total.write(chunk.of(grad))
        return None, None, own_weights.grad() if need_weights else None, *grads
