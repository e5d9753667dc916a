"""The memory of the fused backends: made once for all chunks of one shape, with every view of it that the work needs.

Making a view costs as much as computing a small tile's product, so views are made once and kept.  The memory itself
stays with the thread from call to call, as fresh pages cost as much as the work on them: a few times
``tiling.CHUNK_BYTES`` a thread of torch.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from gpam.attention.backends.dropout import random_words
from gpam.attention.backends.tiling import LANE, RowBlock


class _Pool(threading.local):
    """One growing buffer for every use of memory; a call holds none of them after it returns."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def take(self, use: str, size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """At least ``size`` elements of whatever the last user left there; on a GPU, whose streams do not wait for each
        other, of torch's own pool."""
        if device.type != "cpu":
            return torch.empty(size, dtype=dtype, device=device)
        key = use, dtype, device
        if key not in self._buffers or self._buffers[key].numel() < size:
            with torch.inference_mode(False):  # a call outside of that mode could not write to it
                self._buffers[key] = torch.empty(size, dtype=dtype, device=device)
        return self._buffers[key]

    def clear(self) -> None:
        self._buffers.clear()


POOL = _Pool()


@dataclass(frozen=True)
class Layout:
    """Branches in groups: the members of a group share a key, and are stacked so that one product serves them all."""

    groups: int
    members: int

    @property
    def branches(self) -> int:
        return self.groups * self.members

    def by_group(self, tensor: Tensor) -> Tensor:
        """``[branches, heads, ...]`` -> ``[groups, heads, members, ...]``."""
        return tensor.unflatten(0, (self.groups, self.members)).transpose(1, 2)

    def by_branch(self, tensor: Tensor) -> Tensor:
        """``[groups, heads, members, ...]`` -> ``[branches, heads, ...]``."""
        return tensor.transpose(1, 2).flatten(0, 1)


class Stack:
    """One matrix ``[rows, last]`` for every branch and head, contiguous, and its views, made when first asked for."""

    def __init__(self, memory: Tensor, layout: Layout, chunk_shape: tuple[int, int], rows: int, last: int):
        self._layout, self._chunk_shape = layout, chunk_shape
        shape = (layout.groups, chunk_shape[0] * chunk_shape[1], layout.members, rows, last)
        self.all = memory.view(-1)[: math.prod(shape)].view(shape)

    @cached_property
    def by_group(self) -> list[Tensor]:
        """``[heads, members * rows, last]`` for every group."""
        return list(self.all.flatten(2, 3).unbind())

    @cached_property
    def by_branch(self) -> list[Tensor]:
        """``[heads, rows, last]`` for every branch."""
        return list(self._layout.by_branch(self.all).unbind())

    @cached_property
    def by_sequence(self) -> Tensor:
        """``[groups, sequences, heads, members, rows, last]``."""
        return self.all.unflatten(1, self._chunk_shape)

    @cached_property
    def by_head(self) -> list[list[Tensor]]:
        """``[rows, last]`` for every head, of every branch."""
        return [list(branch.unbind()) for branch in self.by_branch]

    @cached_property
    def slots(self) -> list[Tensor]:
        """``[sequences, heads, rows, last]`` for every branch."""
        return [branch.unflatten(0, self._chunk_shape) for branch in self.by_branch]


class Rows:
    """Input rows ``[groups, heads, rows, d]``, copied here from wherever the caller has them.

    Inputs mostly come with their heads side by side.  ``interleaved`` keeps that order, ``[rows, heads, d]``, in which
    the copy of many heads streams; the odd row length keeps the rows of one head out of each other's cache sets.
    """

    def __init__(
        self, memory: Tensor, groups: int, chunk_shape: tuple[int, int], rows: int, last: int, *, interleaved: bool
    ):
        heads = math.prod(chunk_shape)
        if interleaved:
            shape = (groups, rows, heads * last + LANE)
            lines = memory[: math.prod(shape)].view(shape)[..., : heads * last]
            self.all = lines.unflatten(2, (heads, last)).transpose(1, 2)
        else:
            shape = (groups, heads, rows, last)
            self.all = memory[: math.prod(shape)].view(shape)
        self.by_group = list(self.all.unbind())  # [heads, rows, d]


class Tile:
    """A row block of a chunk: memory for its matrices and the views of the chunk's keys and values that it sees."""

    def __init__(self, workspace: "Workspace", block: RowBlock, future: Tensor | None):
        self._workspace, self.block = workspace, block
        self.future = None if future is None else future[: block.count, : block.width - block.start]
        self.scores = workspace.stack("scores", block.count, block.width)
        self.product = workspace.stack("product", block.count, block.width)
        groups, members = workspace.layout.groups, workspace.layout.members
        head_dim, value_dim = workspace.keys[0].shape[-1], workspace.values.shape[-1]
        rows = workspace.rows("queries", groups, members * block.count, head_dim)
        self.queries = rows.by_group  # [heads, members * rows, d]
        self.each_query = rows.all.unflatten(2, (members, block.count))  # [groups, heads, members, rows, d]
        self.query_slots = [
            query.unflatten(0, workspace.chunk_shape) for query in workspace.layout.by_branch(self.each_query)
        ]
        (self.grad_rows,) = workspace.rows("grad_rows", 1, block.count, value_dim).by_group
        self.grad_rows_slot = self.grad_rows.unflatten(0, workspace.chunk_shape)
        self.grad_queries = workspace.stack("grad_queries", block.count, head_dim)
        self.sum = workspace.matrix("sum", block.count, block.width)
        self.out = workspace.matrix("out", block.count, value_dim)
        self.out_slot = self.out.unflatten(0, workspace.chunk_shape)
        self.keys = [key[:, : block.width] for key in workspace.keys]
        self.keys_transposed = [key.transpose(1, 2) for key in self.keys]
        self.values = workspace.values[:, : block.width]
        self.values_transposed = self.values.transpose(1, 2)

    @cached_property
    def noise(self) -> Stack:
        """Dropout factors, for which memory is taken only where there is dropout."""
        return self._workspace.stack("noise", self.block.count, self.block.width)

    @cached_property
    def random_bits(self) -> Tensor:
        return self._workspace.words("random_bits", random_words(self.noise.all.numel()))


class Workspace:
    """Memory for chunks of one shape: keys ``[heads, width, d]`` a group, values, and the tiles, which share theirs."""

    def __init__(
        self,
        *,
        layout: Layout,
        chunk_shape: tuple[int, int],
        blocks: Sequence[RowBlock],
        keys: Sequence[Tensor],
        values: Tensor,
        future: Tensor | None,
    ):
        self.layout, self.chunk_shape = layout, chunk_shape
        self.heads = chunk_shape[0] * chunk_shape[1]
        self._like = values
        self._memory: dict[str, Tensor] = {}
        self._most_rows = max(block.count for block in blocks)
        self._most_width = blocks[0].width
        self._short = len(blocks) == 1
        self.keys = [self._source_rows(f"key{i}", key) for i, key in enumerate(keys)]
        self.values = self._source_rows("value", values)
        source, inputs = values.shape[2], (*self.keys, self.values)
        self._slots = [rows[:, :source].unflatten(0, chunk_shape) for rows in inputs]
        self._beyond = [rows[:, source:] for rows in inputs] if source < self._most_width else []
        self.tiles = [Tile(self, block, future) for block in blocks]

    def load(self, keys_and_values: Sequence[Tensor]) -> None:
        for slot, tensor in zip(self._slots, keys_and_values, strict=True):
            slot.copy_(tensor)
        for rows in self._beyond:  # their probabilities are zero, which would not hide a NaN
            rows.zero_()

    def stack(self, name: str, rows: int, last: int) -> Stack:
        """A matrix a branch."""
        memory = self._flat(name, self.layout.branches * self.heads * self._most_rows * last)
        return Stack(memory, self.layout, self.chunk_shape, rows, last)

    def view(self, tensor: Tensor) -> Stack:
        """The views of a matrix a branch that lies elsewhere, ``[groups, heads, members, rows, last]``."""
        return Stack(tensor, self.layout, self.chunk_shape, *tensor.shape[-2:])

    def matrix(self, name: str, rows: int, last: int) -> Tensor:
        """``[heads, rows, last]``."""
        memory = self._flat(name, self.heads * max(rows, self._most_rows) * last)
        return memory[: self.heads * rows * last].view(self.heads, rows, last)

    def rows(self, name: str, groups: int, rows: int, last: int) -> Rows:
        """Input rows of a block, ``rows`` of them a group."""
        memory = self._flat(name, self.layout.branches * self._most_rows * (self.heads * last + LANE))
        return Rows(memory, groups, self.chunk_shape, rows, last, interleaved=self._short)

    def words(self, name: str, size: int) -> Tensor:
        """int64 memory."""
        return POOL.take(name, size, torch.int64, self._like.device)

    @cached_property
    def column_sums(self) -> list["ColumnSum"]:
        """One for every key, and one for the values."""
        return [ColumnSum(self, f"sum{i}", tensor.shape[-1]) for i, tensor in enumerate((*self.keys, self.values))]

    def _source_rows(self, name: str, tensor: Tensor) -> Tensor:
        width, last = self._most_width, tensor.shape[-1]
        memory = self._flat(name, width * (self.heads * last + LANE))
        return Rows(memory, 1, self.chunk_shape, width, last, interleaved=self._short).by_group[0]

    def _flat(self, name: str, size: int) -> Tensor:
        """Memory shared by the tiles, which ask for their largest block first."""
        if name not in self._memory:
            self._memory[name] = POOL.take(name, size, self._like.dtype, self._like.device)
        return self._memory[name]


class ColumnSum:
    """The sum over the row blocks of a chunk of ``matrix^T rows``, ``[heads, source, d]``, in float32 or wider.

    Several blocks are summed as ``rows^T matrix`` and transposed at the end: that product is up to a third faster.
    """

    def __init__(self, workspace: Workspace, name: str, last: int):
        self._workspace, self._name, self._last = workspace, name, last
        self._width = workspace.values.shape[1]
        self._transposed = len(workspace.tiles) > 1
        self._wide = None
        if self._transposed and workspace.values.dtype.itemsize < 4:
            self._wide = workspace.values.new_empty(workspace.heads, last, self._width, dtype=torch.float32)

    def add(self, matrix: Tensor, rows: Tensor, *, first: bool) -> None:
        """``matrix`` ``[heads, m, width]``, ``rows`` ``[heads, m, d]``; the ``first`` block is as wide as any."""
        if not self._transposed:
            torch.bmm(matrix.transpose(1, 2), rows, out=self._memory)
            return
        part = self._memory if first else self._workspace.matrix(f"part{self._last}", self._last, matrix.shape[-1])
        torch.bmm(rows.transpose(1, 2), matrix, out=part)
        if self._wide is not None and first:
            self._wide.copy_(part)
        elif not first:
            self._total[..., : part.shape[-1]].add_(part)

    def write(self, out: Tensor) -> None:
        """Into ``[sequences, heads, source, d]``."""
        total = self._total.transpose(1, 2) if self._transposed else self._total
        out.copy_(total[:, : out.shape[2]].unflatten(0, out.shape[:2]))

    @cached_property
    def _memory(self) -> Tensor:
        shape = (self._last, self._width) if self._transposed else (self._width, self._last)
        return self._workspace.matrix(self._name, *shape)

    @property
    def _total(self) -> Tensor:
        return self._memory if self._wide is None else self._wide
