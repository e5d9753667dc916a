"""What a machine chooses its backends by: measured in seconds by ``python -m gpam.attention.backends``.

The order of some backends depends on the processor, so that thresholds of one are wrong on another. The measurement
lies beside the compiled library in the Python environment, named after processor, PyTorch and library; where it is
missing or not readable, the thresholds of :mod:`.choice` hold. Backends differ in rounding and in the masks of dropout,
so a training that is resumed goes on with the choices that it began with (:func:`keep`).
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from gpam import processor
from gpam.attention.backends.choice import BACKENDS
from gpam.attention.backends.compiled import library
from gpam.errors import UsageError

FILE = "backends.json"  # in the folder of a training: what it chose by from its first start on
LENGTHS = {24: 16, 64: 32, 256: 128}  # calls of up to so many rows or keys are timed as calls of this length
LONGEST = 512  # as which all others are
TOKENS, HEADS, HEAD_DIM, REPEATS = 2048, 4, 32, 4


@dataclasses.dataclass(frozen=True)
class Choices:
    """``library``: the file name of the compiled library, None: without it. ``fastest``: for each kind of call
    (:func:`kind`) the backends in the order of their times; a kind that is missing goes by thresholds."""

    library: str | None
    fastest: Mapping[str, Sequence[str]]

    @classmethod
    def read(cls, path: Path) -> "Choices | None":
        """What is in a file; None where it is missing or not such a file."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            library_name, fastest = content["library"], content["fastest"]
            known = content.get("sha256") in (None, _sum(library_name, fastest)) and all(
                isinstance(names, list) and all(name in BACKENDS for name in names) for names in fastest.values()
            )
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return cls(library_name, fastest) if known and isinstance(library_name, str | None) else None

    def write(self, path: Path) -> None:
        part = path.with_name(f"{path.name}.{os.getpid()}.part")  # several processes may measure
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {**dataclasses.asdict(self), "sha256": _sum(self.library, self.fastest)}
        part.write_text(json.dumps(content, indent=1), encoding="utf-8")
        part.replace(path)

    def __str__(self) -> str:
        with_library = "PyTorch's operators alone" if self.library is None else "with the compiled library"
        return f"{with_library}, {'measured' if self.fastest else 'by thresholds'}"


def _sum(library_name: object, fastest: object) -> str:
    return hashlib.sha256(json.dumps([library_name, fastest], sort_keys=True).encode()).hexdigest()


def kind(*, branches: int, target: int, source: int, causal: bool, dropout: float) -> str:
    """The kind of a call, as it is measured."""
    most = max(target, source)
    length = next((length for limit, length in LENGTHS.items() if most <= limit), LONGEST)
    words = ("two" if branches > 1 else "one", str(length), "causal" if causal else "full")
    return " ".join([*words, "dropout"] if dropout else words)


def path() -> Path:
    """Where this machine's measurement is, if it was made."""
    words = (processor.name(), torch.__version__, library.path().name)
    return library.path().with_name(f"backends-{hashlib.sha256('|'.join(words).encode()).hexdigest()[:12]}.json")


def _library() -> str | None:
    """The compiled library that is there."""
    return library.path().name if library.load() is not None else None


def of_machine() -> Choices:
    """This machine's measurement, else nothing but whether the library is there."""
    there = _library()
    found = Choices.read(path())
    return found if found is not None and found.library == there else Choices(there, {})


#: Nothing measured, nothing compiled.
PLAIN = Choices(None, {})
_used: Choices | None = None


@functools.cache
def _of_this_process() -> Choices:
    return of_machine()


def current() -> Choices:
    """What this process chooses by."""
    return _of_this_process() if _used is None else _used


def use(choices: Choices | None) -> None:
    """Let this process choose by ``choices``; None: by those of the machine."""
    global _used
    _used = choices


def keep(folder: Path, *, resumed: bool, write: bool = True) -> Choices:
    """Use the choices in :data:`FILE` of ``folder`` where a training is resumed, else those of the machine, and
    ``write`` them there.

    Without the library that they name, the rest of them holds, and the training goes on with other last bits.

    Raises:
        UsageError: the file of a training that is resumed is damaged.
    """
    path = folder / FILE
    before = Choices.read(path) if resumed else None
    if resumed and before is None and path.is_file():
        raise UsageError(f"{path} is damaged: restore it, or remove it to go on with other last bits and dropout masks")
    if before is None:
        use(None)
        if write:
            current().write(path)
        return current()
    there = _library()
    use(before if before.library in (None, there) else dataclasses.replace(before, library=None))
    return current()


def measure() -> Choices:
    """Time the backends that may be fastest, on calls of every kind, forward and backward, float32, one thread."""
    there = _library()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            lengths = (*LENGTHS.values(), LONGEST)
            cases = itertools.product((1, 2), lengths, (True, False), (0.0, 0.1))
            return Choices(there, dict(_timed(there, *case) for case in cases))
    finally:
        torch.set_num_threads(threads)


def _timed(there: str | None, branches: int, length: int, causal: bool, dropout: float) -> tuple[str, list[str]]:
    from gpam.attention.functional import sum_of_softmaxes

    names = ["compiled" if there else "batched", "materialised"]  # "compiled" is as fast as "batched"
    if branches == 1 and not dropout:
        names.append("sdpa")
    leaves = [torch.randn(length, TOKENS // length, HEADS, HEAD_DIM, requires_grad=True) for _ in range(2 + branches)]
    key, value, *queries = (leaf.permute(1, 2, 0, 3) for leaf in leaves)
    best = dict.fromkeys(names, float("inf"))
    for _ in range(REPEATS):
        for name in names:
            start = time.thread_time()
            out = sum_of_softmaxes(
                queries, key, value, (1.5, -0.5)[:branches], causal=causal, dropout=dropout, backend=name
            )
            torch.autograd.grad(out, leaves, out.detach())
            best[name] = min(best[name], time.thread_time() - start)
    named = kind(branches=branches, target=length, source=length, causal=causal, dropout=dropout)
    return named, sorted(names, key=best.__getitem__)


def main() -> str:
    """Measure and write; returns a sentence that says what became of it."""
    found = measure()
    try:
        found.write(path())
    except OSError as error:
        return f"{path()} cannot be written ({error.strerror}): backends of attention are chosen by thresholds"
    return f"backends of attention, measured on this machine: {path()}"
