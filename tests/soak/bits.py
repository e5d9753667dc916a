"""What two runs of one configuration must have in common, bit by bit."""

import shutil
from pathlib import Path
from typing import Any

import torch

from gpam_suite.records.folder import HYPOTHESES, read_record, write_record
from gpam_suite.records.lines import SCORES, read_history
from gpam_suite.report.page import build
from soak.parts import Figures

MEASURED = ("speed", "memory", "started", "finished", "command", "git", "hardware", "checksums")
"""Fields of a record that tell of time and place; a checkpoint's file, and so its checksum, holds how long it took."""
_TIMES = ("tokens_per_second", "train_seconds")


def differences(one: Path, other: Path, *, records: bool = True) -> list[str]:
    """What differs between two run folders: parameters and optimiser state, metrics (``records``), scores, history."""
    found = []
    for name in ("last", "best"):
        first, second = (_checkpoint(folder, name) for folder in (one, other))
        found += [f"checkpoint_{name} {path}" for path in unequal(first, second)]
    if records:
        told = [_without(read_record(folder).data, MEASURED) for folder in (one, other)]
        found += [f"record {path}" for path in unequal(*told)]
    histories = [[_without(row, _TIMES) for row in read_history(folder)] for folder in (one, other)]
    found += [f"history {path}" for path in unequal(*histories)]
    for name in (SCORES, HYPOTHESES):
        contents = [(folder / name).read_bytes() if (folder / name).exists() else None for folder in (one, other)]
        found += [name] if contents[0] != contents[1] else []
    return found


def tables_differ(reference: Path, run: Path, results: Path, scratch: Path) -> list[str]:
    """The pages of ``results`` that the run ``reference`` would not have given, had it taken ``run``'s time."""
    inside = run.relative_to(results)
    shutil.copytree(reference, scratch / inside, ignore=shutil.ignore_patterns("checkpoints"))
    timed = {**read_record(reference).data, **{name: read_record(run)[name] for name in MEASURED}}
    write_record(scratch / inside, timed)
    made = [path.relative_to(scratch) for path in build(scratch)]
    return [str(name) for name in made if (scratch / name).read_bytes() != _content(results / name)]


def parameters_of(folder: Path) -> bytes:
    """The parameters and buffers of the last checkpoint, byte by byte."""
    return b"".join(value.numpy().tobytes() for value in _checkpoint(folder, "last")["model"].values())


def compared(folder: Path) -> Figures:
    """How much :func:`differences` looked at."""
    tensors = [value for value in _checkpoint(folder, "last")["model"].values() if isinstance(value, torch.Tensor)]
    return {"parameters": sum(tensor.numel() for tensor in tensors), "rows": len(read_history(folder))}


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _checkpoint(folder: Path, name: str) -> dict[str, Any]:
    state = torch.load(folder / "checkpoints" / f"checkpoint_{name}.pt", weights_only=True)
    return {part: state[part] for part in ("model", "last_optimizer_state")} | {
        "iterator": state["extra_state"]["train_iterator"],
        "best": state["extra_state"]["best"],
    }


def _without(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def unequal(one: Any, other: Any, path: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for key in one for found in unequal(one[key], other[key], f"{path}/{key}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for index, (first, second) in pairs for found in unequal(first, second, f"{path}/{index}")]
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        same = same and torch.equal(_bytes(one), _bytes(other))
        return [] if same else [path]
    return [] if type(one) is type(other) and one == other else [f"{path}: {str(one)[:60]} | {str(other)[:60]}"]
