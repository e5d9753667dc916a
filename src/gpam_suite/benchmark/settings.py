"""What a run of the benchmark holds fixed over its cases."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    threads: int
    repeats: int
    seed: int
    device: str  # cpu or cuda
