"""The library of ``rows.c``: built by ``python -m gpam.attention.backends.compiled`` where there is a C compiler.

It lies in the Python environment, one for each source and set of vector instructions, so that an environment that moves
to another processor or is brought up to date finds none, and never a wrong one. A library that does not give softmax's
numbers is not used.
"""

import ctypes
import functools
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("rows.c")
_COMPILERS = ("cc", "gcc", "clang")
_OPTIONS = ("-O3", "-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
#: What torch calls the processor's vector instructions, and a compiler's options for them.
_INSTRUCTIONS = {"AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"), "AVX2": ("-march=x86-64-v3",)}


class Tile(ctypes.Structure):
    """``Tile`` of ``rows.c``."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("heads", "branches", "rows", "width", "head_stride", "branch_stride")),
        *((name, ctypes.c_int64) for name in ("first", "source", "weight_branch", "weight_head", "weight_row")),
        *((name, ctypes.c_int64) for name in ("sequence_heads", "hidden_width", "first_head", "causal", "combined")),
        ("seed", ctypes.c_uint64),
        ("threshold", ctypes.c_uint32),
        ("kept_scale", ctypes.c_float),
    ]


def path() -> Path:
    """Where this machine's library is, if it was built."""
    version = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]
    instructions = torch.backends.cpu.get_cpu_capability().lower().replace(" ", "-")
    return Path(sys.prefix) / "lib" / "gpam" / f"attention-{version}-{instructions}.so"


def build(target: Path | None = None) -> str:
    """Compile the library; returns a sentence that says what became of it."""
    target = target or path()
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return "no C compiler: attention runs by PyTorch's operators alone"
    options = _INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), ())
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [compiler, *_OPTIONS, *options, "-o", str(part), str(SOURCE)]
        subprocess.run(command, text=True, capture_output=True, check=True)
        part.replace(target)
    except subprocess.CalledProcessError as error:
        part.unlink(missing_ok=True)
        last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"{compiler} failed ({last}): attention runs by PyTorch's operators alone"
    except OSError as error:
        return f"{target} cannot be written ({error.strerror}): attention runs by PyTorch's operators alone"
    load.cache_clear()
    return f"compiled attention: {target}" if load() else f"{target} does not work: attention runs without it"


@functools.cache
def load() -> ctypes.CDLL | None:
    """The library, or None where it was not built, cannot be loaded or does not compute what it should."""
    try:
        library = ctypes.CDLL(str(path()))
        pointer = ctypes.c_void_p
        library.gpam_forward.argtypes = [ctypes.POINTER(Tile), *[pointer] * 4]
        library.gpam_backward.argtypes = [ctypes.POINTER(Tile), *[pointer] * 6]
        library.gpam_forward.restype = library.gpam_backward.restype = None
    except (OSError, AttributeError):
        return None
    return library if _gives_softmax(library) else None


def _gives_softmax(library: ctypes.CDLL) -> bool:
    scores = torch.linspace(-30, 5, 3 * 32).view(3, 32)
    got, total, weight = scores.clone(), torch.empty(3, 32), torch.ones(1)
    tile = Tile(heads=1, branches=1, rows=3, width=32, source=27, sequence_heads=1, kept_scale=1.0)
    library.gpam_forward(tile, got.data_ptr(), total.data_ptr(), weight.data_ptr(), None)
    return torch.allclose(total[:, :27], torch.softmax(scores[:, :27], -1), rtol=1e-5, atol=0)
