"""The library of ``attention.c``: built by ``python -m gpam.attention.backends`` where there is a C compiler.

It lies in the Python environment, one for each source and set of vector instructions, so that an environment that moves
to another processor or is brought up to date finds none, and never a wrong one. A library that does not give softmax's
numbers is not used.
"""

import ctypes
import functools
import hashlib
from pathlib import Path

import torch
from torch import Tensor

from gpam import c_library

SOURCE = Path(__file__).with_name("attention.c")
_OPTIONS = ("-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
#: What torch calls the processor's vector instructions, and a compiler's options for them.
_INSTRUCTIONS = {"AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"), "AVX2": ("-march=x86-64-v3",)}


class Call(ctypes.Structure):
    """``Call`` of ``attention.c``."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("first_head", "heads", "sequence_heads", "branches", "keys")),
        *((name, ctypes.c_int64) for name in ("target", "source", "head_dim", "value_dim")),
        *((name, ctypes.c_int64) for name in ("weight_branch", "weight_head", "weight_row", "hidden_width")),
        *((name, ctypes.c_int64) for name in ("causal", "combined")),
        ("seed", ctypes.c_uint64),
        ("threshold", ctypes.c_uint32),
        ("kept_scale", ctypes.c_float),
        ("scale", ctypes.c_float),
    ]


def path() -> Path:
    """Where this machine's library is, if it was built."""
    version = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    instructions = torch.backends.cpu.get_cpu_capability().lower().replace(" ", "-")
    return c_library.folder() / f"attention-{version}-{instructions}.so"


def build(target: Path | None = None) -> str:
    """Compile the library; returns a sentence that says what became of it."""
    target = target or path()
    options = _INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), ())
    if why := c_library.build(SOURCE.read_text(encoding="utf-8"), target, *_OPTIONS, *options):
        return f"{why}: attention runs by PyTorch's operators alone"
    load.cache_clear()
    return f"compiled attention: {target}" if load() else f"{target} does not work: attention runs without it"


@functools.cache
def load() -> ctypes.CDLL | None:
    """The library, or None where it was not built, was changed since, cannot be loaded or does not compute what it
    should."""
    try:
        if not c_library.is_whole(path()):
            return None
        library = ctypes.CDLL(str(path()))
        call, pointer = ctypes.POINTER(Call), ctypes.c_void_p
        library.gpam_memory.argtypes = library.gpam_kept.argtypes = [call]
        library.gpam_memory.restype = library.gpam_kept.restype = ctypes.c_int64
        library.gpam_forward.argtypes = [call, *[pointer] * 6]
        library.gpam_backward.argtypes = [call, *[pointer] * 8]
        numbers = [ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_float]
        library.gpam_dropout.argtypes = [pointer, pointer, *numbers]
        library.gpam_forward.restype = library.gpam_backward.restype = library.gpam_dropout.restype = None
    except (OSError, AttributeError):
        return None
    return library if _gives_softmax(library) else None


def rows(*tensors: Tensor) -> ctypes.Array:
    """``Rows`` of ``attention.c``, one a tensor ``[batch, heads, length, d]``."""
    numbers = [number for tensor in tensors for number in (tensor.data_ptr(), *tensor.stride()[:3])]
    return (ctypes.c_int64 * len(numbers))(*numbers)


def dropout_numbers(p: float) -> tuple[int, float]:
    """The threshold of 2^32 below which a weight is dropped, and ``1 / (1 - p)``."""
    return min(round(p * 2**32), 2**32 - 1), 1.0 / (1.0 - p)


def _gives_softmax(library: ctypes.CDLL) -> bool:
    """Whether it gives the probabilities of known scores: one head of 3 rows, 27 keys and as many values."""
    like = {"dtype": torch.float32, "device": "cpu"}  # whatever the defaults are
    scores = torch.linspace(-30, 5, 3 * 27, **like).view(1, 1, 3, 27)
    identity = torch.eye(27, **like).view(1, 1, 27, 27)
    got = torch.empty_like(scores)
    sizes = {"target": 3, "source": 27, "head_dim": 27, "value_dim": 27}
    call = Call(heads=1, sequence_heads=1, branches=1, keys=1, kept_scale=1.0, scale=1.0, **sizes)
    memory, weight = torch.empty(library.gpam_memory(call), **like), torch.ones(1, **like)
    tensors = rows(identity, scores, identity)
    library.gpam_forward(call, memory.data_ptr(), tensors, weight.data_ptr(), None, rows(got), None)
    return torch.allclose(got, torch.softmax(scores, -1), rtol=1e-5, atol=0)
