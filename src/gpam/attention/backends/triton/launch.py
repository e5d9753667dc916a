"""The autograd function around the kernels: what is kept, how the grid is cut, what is refused."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gpam.attention.backends.dropout import drawn_seed
from gpam.attention.backends.problem import Problem, rows_together
from gpam.autograd import once_differentiable
from gpam.errors import UsageError

try:
    import triton

    from gpam.attention.backends.triton import kernels_long, kernels_short
except ModuleNotFoundError as error:
    raise UsageError(
        "backend 'triton' needs the package triton, which is not installed: pip install triton, or use backend='auto'"
    ) from error

# Keys and queries that one program of the short kernels holds, at most, by bytes of a number, for heads of up to 64 and
# of more: what compiles for a Hopper GPU into its registers and shared memory.
SHORT = {2: (128, 64), 4: (64, 32)}
WIDEST = 128  # a head, at most
_HOPPER = 227 << 10  # bytes of shared memory that one program may have there
_LOG2_E = math.log2(math.e)


@dataclass(frozen=True)
class Blocks:
    """Rows and keys of a tile, and how many warps and pipeline stages work on it."""

    rows: int
    keys: int
    warps: int
    stages: int


def blocks(width: int, dtype: torch.dtype, backward: bool, shared: int) -> Blocks:
    """By what compiles for a Hopper GPU (sm_90) with few spilled registers, but for float32 heads wider than 64. Their
    backward pass takes 192 KiB of shared memory, and 105 in half precision: where a program may have less (``shared``,
    in bytes; of the GPUs that Triton knows at least 99 KiB) its tiles are smaller. Never timed on one."""
    wide_backward = width > 64 and backward
    if dtype == torch.float32:
        return Blocks(16, 16, 4, 1) if wide_backward and shared < 192 << 10 else Blocks(32, 32, 4, 1)
    if width <= 64:
        return Blocks(64, 64, 8, 2) if backward else Blocks(128, 64, 8, 3)
    if wide_backward:
        return Blocks(32, 64, 8, 2) if shared >= 106 << 10 else Blocks(32, 32, 8, 1)
    return Blocks(64, 64, 8, 2)


def attention(problem: Problem) -> Tensor:
    """``O`` ``[batch, heads, target, d_v]``."""
    _refuse(problem)
    # Below 2^31 and odd, above 1: Triton compiles a kernel anew for a 1 and for multiples of 16.
    seed = 2 * (drawn_seed() % (2**30 - 2)) + 3 if problem.dropout > 0 else 0
    options = _Options(
        two=problem.branches == 2,
        two_keys=len(problem.keys) == 2,
        causal=problem.causal,
        dropout=problem.dropout,
        drop_sum=problem.combined_dropout,
        seed=seed,
        scale=problem.scale,
    )
    tensors = [rows_together(tensor) for tensor in (problem.values, *problem.queries, *problem.keys)]
    # Triton starts kernels on the current device, wherever the tensors are; backward, autograd sees to it.
    with torch.cuda.device_of(problem.values):
        return _Fused.apply(options, problem.key_padding_mask, problem.weights, *tensors)


def _refuse(problem: Problem) -> None:
    values = problem.values
    if not values.is_cuda and not triton.knobs.runtime.interpret:
        raise UsageError("backend 'triton' needs a GPU, got tensors on the CPU; use backend='auto'")
    if values.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise UsageError(f"backend 'triton' takes float32, float16 and bfloat16, got {values.dtype}")
    if problem.branches > 2:
        raise UsageError(f"backend 'triton' takes one or two branches, got {problem.branches}")
    widest = max(problem.queries[0].shape[-1], values.shape[-1])
    if widest > WIDEST:
        raise UsageError(f"backend 'triton' takes heads of at most {WIDEST}, got {widest}; use backend='auto'")
    if values.is_cuda and problem.dropout > 0 and torch.cuda.is_current_stream_capturing():
        raise UsageError(
            "backend 'triton' draws dropout at each call, and a CUDA graph would repeat one draw; use backend='auto'"
        )
    if values.is_cuda and (capability := torch.cuda.get_device_capability(values.device)) < (8, 0):
        got = ".".join(map(str, capability))
        raise UsageError(f"backend 'triton' needs compute capability 8.0, this GPU has {got}; use backend='auto'")


@dataclass(frozen=True)
class _Options:
    two: bool
    two_keys: bool
    causal: bool
    dropout: float
    drop_sum: bool
    seed: int
    scale: float


class _Call:
    """The arguments that every kernel takes."""

    def __init__(self, options: _Options, padding: Tensor | None, weights: Tensor, tensors: tuple[Tensor, ...]):
        self.options = options
        self.values, self.queries = tensors[0], tensors[1 : 2 + options.two]
        self.keys = tensors[2 + options.two :]
        self.batch, self.heads, self.target, self.head_dim = self.queries[0].shape
        self.source, self.value_dim = self.values.shape[2:]
        self.programs = self.batch * self.heads
        self.weights = weights.to(torch.float32).reshape(len(self.queries), self.programs, -1).contiguous()
        self.padded = padding is not None
        self.padding = padding.to(torch.uint8).contiguous() if self.padded else self.values
        wide = max(self.head_dim, self.value_dim) > 64
        self.short = max(self.target, self.source) <= SHORT[self.values.element_size()][wide]

    @property
    def widths(self) -> dict[str, int]:
        """Whole powers of two, as a block's sizes must be; not below 16, the least a product takes."""
        return {"D": _power_of_two(self.head_dim), "DV": _power_of_two(self.value_dim)}

    def blocks(self, backward: bool) -> tuple[dict[str, int], Blocks]:
        if self.short:
            cut = Blocks(_power_of_two(self.target), _power_of_two(self.source), 4 if self.source <= 32 else 8, 1)
        else:
            cut = blocks(max(self.widths.values()), self.values.dtype, backward, _shared_memory(self.values))
        sizes = {"ROWS": cut.rows, "KEYS": cut.keys, "num_warps": cut.warps, "num_stages": cut.stages}
        return self.widths | sizes, cut

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """``Q0, Q1, K0, K1, V, WEIGHTS, PADDING``; what there is one of stands for the second too."""
        return self.queries[0], self.queries[-1], self.keys[0], self.keys[-1], self.values, self.weights, self.padding

    def strides(self, like_out: Tensor) -> tuple[int, ...]:
        tensors = (*self.inputs[:5], like_out)
        rows = self.weights.shape[2]
        return (*(stride for tensor in tensors for stride in tensor.stride()[:3]), rows, int(rows > 1))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.heads, self.programs, self.target, self.source, self.head_dim, self.value_dim

    @property
    def flags(self) -> dict[str, bool]:
        o = self.options
        return {
            "TWO": o.two,
            "TWO_KEYS": o.two_keys,
            "CAUSAL": o.causal,
            "PADDED": self.padded,
            "DROPOUT": o.dropout > 0,
            "DROP_SUM": o.drop_sum,
        }


def _shared_memory(tensor: Tensor) -> int:
    """Bytes that one program may have where ``tensor`` is; in the interpreter as on a Hopper GPU."""
    if not tensor.is_cuda:
        return _HOPPER
    return torch.cuda.get_device_properties(tensor.device).shared_memory_per_block_optin


def _power_of_two(size: int) -> int:
    return max(16, triton.next_power_of_2(size))


class _Fused(torch.autograd.Function):
    """Tensors: values, one or two queries, one or two keys."""

    @staticmethod
    def forward(ctx, options: _Options, padding: Tensor | None, weights: Tensor, *tensors: Tensor) -> Tensor:
        call = _Call(options, padding, weights, tensors)
        like = call.queries[0]
        out = torch.empty_like(like[..., :1].expand(*like.shape[:3], call.value_dim))
        meta, cut = call.blocks(backward=False)
        scaled = (options.scale * _LOG2_E, options.seed, options.dropout)
        kept = []
        if call.short:
            kernels_short.forward[(call.programs,)](
                *call.inputs, out, *call.strides(out), *call.sizes, *scaled, **call.flags, **meta
            )
        else:
            outs = like.new_empty(len(call.queries), call.programs, call.target, call.value_dim)
            lse = like.new_empty(len(call.queries), call.programs, call.target, dtype=torch.float32)
            kernels_long.forward[(call.programs * triton.cdiv(call.target, cut.rows),)](
                *call.inputs, out, outs[0], outs[-1], lse, *call.strides(out), *call.sizes, *scaled,
                **call.flags, **meta,
            )  # fmt: skip
            kept = [outs, lse]
        ctx.options, ctx.inputs = options, len(tensors)
        ctx.save_for_backward(padding, weights, *tensors, *kept)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_out: Tensor):
        options = ctx.options
        padding, weights, *saved = ctx.saved_tensors
        call = _Call(options, padding, weights, tuple(saved[: ctx.inputs]))
        grad_out = rows_together(grad_out)
        make = call.values.new_empty
        delta = make(len(call.queries), call.programs, call.target, dtype=torch.float32)
        per_head = (call.batch, call.heads)
        grad_keys = [make(*per_head, call.source, call.head_dim) for _ in call.keys]
        grad_values = make(*per_head, call.source, call.value_dim)
        meta, cut = call.blocks(backward=True)
        scaled = (options.scale * _LOG2_E, options.scale, options.seed, options.dropout)
        if call.short:
            grad_queries = [make(*per_head, call.target, call.head_dim) for _ in call.queries]
            kernels_short.backward[(call.programs,)](
                *call.inputs, grad_out, delta, grad_queries[0], grad_queries[-1], grad_keys[0], grad_keys[-1],
                grad_values, *call.strides(grad_out), *call.sizes, *scaled, **call.flags, **meta,
            )  # fmt: skip
        else:
            outs, lse = saved[ctx.inputs :]
            kernels_long.delta[(call.programs * triton.cdiv(call.target, cut.rows), len(call.queries))](
                grad_out, outs, delta, *grad_out.stride()[:3], call.heads, call.programs, call.target, call.value_dim,
                DV=meta["DV"], ROWS=cut.rows,
            )  # fmt: skip
            # Programs of all key blocks add to the gradient of a query, in float32.
            summed = make(len(call.queries), *per_head, call.target, call.head_dim, dtype=torch.float32).zero_()
            kernels_long.backward[(call.programs * triton.cdiv(call.source, cut.keys),)](
                *call.inputs, grad_out, lse, delta, summed[0], summed[-1], grad_keys[0], grad_keys[-1],
                grad_values, *call.strides(grad_out), *call.sizes, *scaled, **call.flags, **meta,
            )  # fmt: skip
            grad_queries = list(summed.to(call.values.dtype).unbind())
        grad_weights = None
        if ctx.needs_input_grad[2]:
            change = delta.view(len(call.queries), *per_head, call.target, 1)
            grad_weights = change if weights.shape[3] > 1 else change.sum(3, keepdim=True)
        return None, None, grad_weights, grad_values, *grad_queries, *grad_keys
