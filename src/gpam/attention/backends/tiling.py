"""How the fused backends cut a call: chunks of heads, blocks of query rows, and the width a row is computed in."""

from dataclasses import dataclass

from torch import Tensor

ROWS = 64  # query rows of a block
LONG_ROWS = 128  # where rows are wider than LONG: fewer, larger steps, and little more work of the future
LONG = 1024
LANE = 16  # rows of scores are computed in multiples of this width: odd widths cost up to 1.7 times as much at 30 keys
# Of all memory of a chunk, for each thread: little enough to stay in the cache, enough to be worth the calls.
CHUNK_BYTES = 12 << 20
SHORT_CHUNK_BYTES = 6 << 20  # where one block is all of it


@dataclass(frozen=True)
class Chunk:
    """Heads computed together: some heads of one sequence, or all heads of some sequences."""

    sequence: int  # the first
    sequences: int
    head: int  # the first
    heads: int
    position: int  # of the first head among the heads of all sequences

    @property
    def shape(self) -> tuple[int, int]:
        return self.sequences, self.heads

    @property
    def size(self) -> int:
        return self.sequences * self.heads

    def of(self, tensor: Tensor, block: "RowBlock | None" = None) -> Tensor:
        """The chunk's (and the block's) part of ``[batch, heads, length, d]``."""
        if self.sequences < tensor.shape[0]:
            tensor = tensor.narrow(0, self.sequence, self.sequences)
        if self.heads < tensor.shape[1]:
            tensor = tensor.narrow(1, self.head, self.heads)
        if block is not None and block.count < tensor.shape[2]:
            tensor = tensor.narrow(2, block.start, block.count)
        return tensor

    def of_merged(self, tensor: Tensor) -> Tensor:
        """The chunk's part of ``[branches, batch * heads, ...]``."""
        return tensor.narrow(1, self.position, self.size)


@dataclass(frozen=True)
class RowBlock:
    """Query rows ``start`` to ``stop``, which see no key at or beyond ``width``."""

    start: int
    stop: int
    width: int

    @property
    def count(self) -> int:
        return self.stop - self.start


def padded(width: int) -> int:
    """``width`` rounded up to whole lanes."""
    return -(-width // LANE) * LANE


def row_blocks(target: int, source: int, causal: bool) -> list[RowBlock]:
    """Blocks of rows, the last rows first: the first block to be computed is as wide as any."""
    rows = LONG_ROWS if source > LONG else ROWS
    starts = range(0, target, rows)
    stops = [min(start + rows, target) for start in starts]
    blocks = [
        RowBlock(start, stop, padded(stop if causal else source)) for start, stop in zip(starts, stops, strict=True)
    ]
    return blocks[::-1]


def chunks(batch: int, heads: int, head_bytes: int, thread_bytes: int, threads: int) -> list[Chunk]:
    """Chunks of about ``thread_bytes`` a thread, where one head takes ``head_bytes``.

    The threads share the heads of a chunk, so its size is a multiple of their number where that divides.
    """
    size = max(1, thread_bytes // head_bytes) * threads
    if size < heads:
        size = _even(heads, size, threads)
        return [
            Chunk(sequence, 1, head, min(size, heads - head), sequence * heads + head)
            for sequence in range(batch)
            for head in range(0, heads, size)
        ]
    size = _even(batch, size // heads, 1)
    return [
        Chunk(sequence, min(size, batch - sequence), 0, heads, sequence * heads) for sequence in range(0, batch, size)
    ]


def _even(total: int, most: int, multiple: int) -> int:
    """A part size, a multiple of ``multiple``, that cuts ``total`` into nearly equal parts of about ``most``."""
    part = -(-total // -(-total // most))
    return -(-part // multiple) * multiple
