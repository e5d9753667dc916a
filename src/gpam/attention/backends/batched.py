"""Backend "batched": the algebra of ``tiled`` as whole-call batched products, the probabilities kept, for short rows.

    P = sum_j c_j P_j,   O = P V
    dV = P^T dO,   G = dO V^T,   T_j = P_j * (G - rowsum(P_j * G)),   dQ_j = s c_j T_j K_j,   dK_j = s c_j T_j^T Q_j

Rows of a few dozen keys are so little work that copying them into tiles and making the views of a tile costs more than
it saves.  Here every step is one call over all heads of the batch, on the tensors as they lie.

PyTorch's softmax over fewer numbers than a vector register holds goes number by number: rows of 14 take twelve times as
long as rows of 16 (AVX-512).  So fewer keys get hidden ones beside them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpam.attention.backends.dropout import drawn_seed, fill_dropout, random_words
from gpam.attention.backends.masks import hidden_rows
from gpam.attention.backends.problem import Problem
from gpam.autograd import once_differentiable

FEWEST_KEYS = 16


def batched(problem: Problem) -> Tensor:
    """``O`` -> ``[batch, heads, target, d_v]``."""
    batch, heads, target, _ = problem.queries[0].shape
    added = max(0, FEWEST_KEYS - problem.source)
    bias, hidden = _masks(problem, added)
    options = _Options(
        branches=problem.branches,
        scale=problem.scale,
        dropout=problem.dropout,
        drop_branches=not problem.combined_dropout,
    )
    weights = None if problem.plain else problem.weights.flatten(1, 2)
    queries, sources = (
        [tensor.flatten(0, 1) for tensor in tensors] for tensors in (problem.queries, (problem.values, *problem.keys))
    )
    values, *keys = [pad(tensor, (0, 0, 0, added)) for tensor in sources] if added else sources
    out = _Batched.apply(options, bias, hidden, weights, values, *queries, *keys)
    return out.view(batch, heads, target, -1)


@dataclass(frozen=True)
class _Options:
    branches: int
    scale: float
    dropout: float
    drop_branches: bool


def _masks(problem: Problem, added: int) -> tuple[Tensor | None, Tensor | None]:
    """0 and -inf, broadcastable to ``[batch * heads, target, source + added]``; rows that see nothing, likewise."""
    values, padding, bias, hidden = problem.values, problem.key_padding_mask, None, None
    heads = values.shape[1]
    if problem.causal:  # no query sees the keys that are added behind its own
        bias = values.new_full((1, problem.target, problem.source + added), float("-inf")).triu_(1)
    elif added and padding is None:
        bias = pad(values.new_zeros(1, 1, problem.source), (0, added), value=float("-inf"))
    if padding is not None:
        padded = values.new_zeros(padding.shape).masked_fill_(padding, float("-inf"))
        padded = pad(padded, (0, added), value=float("-inf"))
        padded = padded[:, None, None].expand(-1, heads, -1, -1).flatten(0, 1)
        bias = padded if bias is None else bias + padded
        rows = hidden_rows(padding, problem.causal)
        if rows.is_cuda or bool(rows.any()):  # asking a GPU would wait for it
            hidden = rows[:, None, :, None].expand(-1, heads, -1, -1).flatten(0, 1)
    return bias, hidden


class _Batched(torch.autograd.Function):
    """Tensors ``[batch * heads, length, d]``: values, then queries, then one key for all or one a branch."""

    @staticmethod
    def forward(ctx, options: _Options, bias, hidden, weights: Tensor | None, *tensors: Tensor) -> Tensor:
        values, queries, keys = _split(options, tensors)
        each = []
        for branch, query in enumerate(queries):
            key = keys[branch % len(keys)].transpose(1, 2)
            if bias is None:
                scores = _scaled_product(query, key, options.scale)
            else:
                scores = torch.baddbmm(bias, query, key, alpha=options.scale)
            probabilities = torch.softmax(scores, -1)
            each.append(probabilities if hidden is None else probabilities.masked_fill_(hidden, 0.0))
        noise = _noise(options, each)
        out = torch.bmm(_combine(options, each, weights, noise), values)
        ctx.options, ctx.inputs = options, len(tensors)
        ctx.save_for_backward(weights, *tensors, *each, *noise)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        options = ctx.options
        weights, *saved = ctx.saved_tensors
        values, queries, keys = _split(options, saved[: ctx.inputs])
        each = saved[ctx.inputs : ctx.inputs + options.branches]
        noise = saved[ctx.inputs + options.branches :]
        needed = ctx.needs_input_grad
        need_values, need_queries, need_keys = _split(options, needed[4:])
        grad_values = None
        if need_values:
            grad_values = torch.bmm(_combine(options, each, weights, noise).transpose(1, 2), grad_out)
        grad = torch.bmm(grad_out, values.transpose(1, 2))
        if noise and not options.drop_branches:
            grad = grad.mul_(noise[0])
        grad_weights = None if weights is None or not needed[3] else torch.empty_like(weights.contiguous())
        grad_queries: list[Tensor | None] = [None] * len(queries)
        grad_keys: list[Tensor | None] = [None] * len(keys)
        for branch, probabilities in enumerate(each):
            own = grad * noise[branch] if noise and options.drop_branches else grad
            if grad_weights is not None:
                delta = (probabilities * own).sum(-1, keepdim=True, dtype=weights.dtype)
                grad_weights[branch] = delta if weights.shape[2] > 1 else delta.sum(1, keepdim=True)
            grad_scores = torch._softmax_backward_data(own, probabilities, -1, probabilities.dtype)
            shared = branch % len(keys)
            weight = None if weights is None else weights[branch]
            if need_queries[branch]:
                found = _scaled_product(grad_scores, keys[shared], options.scale)
                grad_queries[branch] = found if weight is None else found.mul_(weight)
            if need_keys[shared]:
                query = queries[branch] if weight is None else (queries[branch] * weight).to(grad.dtype)
                found = _scaled_product(grad_scores.transpose(1, 2), query, options.scale)
                grad_keys[shared] = found if grad_keys[shared] is None else grad_keys[shared].add_(found)
        return None, None, None, grad_weights, grad_values, *grad_queries, *grad_keys


def _split(options: _Options, tensors) -> tuple:
    return tensors[0], tensors[1 : 1 + options.branches], tensors[1 + options.branches :]


def _noise(options: _Options, each: list[Tensor]) -> list[Tensor]:
    """Dropout factors 0 and 1/(1-p), for every branch or for their sum; none without dropout."""
    if options.dropout == 0:
        return []
    like = each[0]
    generator = torch.Generator(like.device).manual_seed(drawn_seed())
    words = torch.empty(random_words(like.numel()), dtype=torch.int64, device=like.device)
    count = options.branches if options.drop_branches else 1
    return [fill_dropout(torch.empty_like(like), options.dropout, generator, words) for _ in range(count)]


def _combine(options: _Options, each: list[Tensor], weights: Tensor | None, noise: list[Tensor]) -> Tensor:
    """``P`` ``[batch * heads, target, source]``, dropped out."""
    if noise and options.drop_branches:
        each = [probabilities * factors for probabilities, factors in zip(each, noise, strict=True)]
    if weights is None:
        return each[0]
    first, *others = weights.unbind()
    out = each[0] * first
    for probabilities, weight in zip(each[1:], others, strict=True):
        out.addcmul_(probabilities, weight)
    out = out.to(each[0].dtype)
    return out.mul_(noise[0]) if noise and not options.drop_branches else out


def _scaled_product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    """``scale * left right`` in one pass: in half precision the unscaled product could leave the range."""
    out = right.new_empty(left.shape[0], left.shape[1], right.shape[2])
    return torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out)
