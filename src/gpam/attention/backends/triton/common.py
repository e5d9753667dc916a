"""What the kernels share: loading rows, which key is visible, scores, and dropout."""

import triton
import triton.language as tl


@triton.jit
def load_rows(base, rows, columns, row_stride, row_count, column_count):
    """``[rows, columns]`` of a matrix whose last stride is 1; zero beyond its edges."""
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    return tl.load(base + rows.to(tl.int64)[:, None] * row_stride + columns[None, :], mask=inside, other=0.0)


@triton.jit
def store_rows(base, value, rows, columns, row_stride, row_count, column_count):
    inside = (rows < row_count)[:, None] & (columns < column_count)[None, :]
    where = rows.to(tl.int64)[:, None] * row_stride + columns[None, :]
    tl.store(base + where, value.to(base.dtype.element_ty), mask=inside)


@triton.jit
def place(count, SIZE: tl.constexpr):
    """Which head of which sequence a program works for, and which block of its ``count`` rows or keys. Blocks of a head
    run beside each other, as they read the same; all stand on the grid's first axis, as others end at 65,535."""
    blocks = tl.cdiv(count, SIZE)
    return (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks


@triton.jit
def visible_keys(rows, keys, target, source, padding, CAUSAL: tl.constexpr, PADDED: tl.constexpr):
    """``[rows, keys]``: True where a query sees a key; ``padding`` points at the sequence's bytes, 1 = padding."""
    visible = (rows < target)[:, None] & (keys < source)[None, :]
    if CAUSAL:
        visible = visible & (keys[None, :] <= rows[:, None])
    if PADDED:
        visible = visible & (tl.load(padding + keys, mask=keys < source, other=1) == 0)[None, :]
    return visible


@triton.jit
def product(left, right):
    """``left right`` in float32; float32 inputs as three products of TF32 parts, nearly as exact as float32 itself."""
    return tl.dot(left, right, input_precision="tf32x3")


@triton.jit
def masked_scores(q, k, visible, scale):
    return tl.where(visible, product(q, tl.trans(k)) * scale, float("-inf"))


@triton.jit
def dropout_factors(seed, head, rows, keys, dropout, SECOND: tl.constexpr):
    """0 and 1/(1-p): Philox with the counters (key, row, head), whose first and second word are the two branches'."""
    columns = tl.zeros_like(rows)[:, None] + keys[None, :]
    lines = rows[:, None] + tl.zeros_like(keys)[None, :]
    first, second, _, _ = tl.philox(seed, columns, lines, tl.zeros_like(columns) + head, tl.zeros_like(columns))
    word = second if SECOND else first
    return tl.where(tl.uint_to_uniform_float(word) >= dropout, 1.0 / (1.0 - dropout), 0.0)
