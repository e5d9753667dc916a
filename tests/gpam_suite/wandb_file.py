"""Reads the file of an offline wandb run, as ``wandb sync`` does: LevelDB's log format, of wandb's protocol buffers."""

import struct
from collections.abc import Iterator
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

BLOCK, HEADER = 32768, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def records(path: Path) -> Iterator[Record]:
    """The records of the run file, in order."""
    data, at, parts = path.read_bytes(), HEADER, []
    if data[:4] != b":W&B":
        raise ValueError(f"{path} is no run file of wandb's")
    while at + HEADER <= len(data):
        room = BLOCK - at % BLOCK
        if room < HEADER:  # the end of a block is filled up
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEADER])
        parts.append(data[at + HEADER : at + HEADER + length])
        at += HEADER + length
        if kind in (FULL, LAST):
            record = Record()
            record.ParseFromString(b"".join(parts))
            parts = []
            yield record
