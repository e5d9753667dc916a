"""What a run of the benchmark holds fixed over its cases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Settings:
    threads: int
    repeats: int
    seed: int
    device: str  # cpu or cuda
    paths: Mapping[str, Any] = field(default_factory=dict)  # where text is; a place on this machine, in no record
