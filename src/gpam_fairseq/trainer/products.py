"""Matrix products at the processor's speed on AMD, where the MKL inside torch takes a slow path.

MKL asks one function, ``mkl_serv_intel_cpu_true``, whether the processor is Intel's, and uses its best kernels only
then. A library with that function alone, loaded before torch, answers 1: the processor's features are still asked for,
so no instruction is used that it lacks. Sums are taken in another order, which changes last bits.

The library is built at set-up where there is a C compiler, and lies in the environment. Wherever it is missing, is not
loadable or is not needed (another processor, macOS), products are computed as torch computes them.
"""

import contextlib
import ctypes
import platform
import sys
from pathlib import Path
from typing import NamedTuple

from gpam_fairseq.trainer import switch

from gpam import c_library, processor
from gpam.errors import UsageError

FUNCTION = "mkl_serv_intel_cpu_true"
_SOURCE = f"int {FUNCTION}(void) {{ return 1; }}\n"


class Products(NamedTuple):
    """Whether MKL is told that the processor is Intel's, and why (not); ``slow``: it should be, and is not."""

    told: bool
    why: str
    slow: bool = False


_state = Products(False, "the processor is asked by nobody yet")


def library() -> Path:
    """Where set-up puts the library: in the Python environment."""
    return c_library.folder() / "intel_products.so"


def build(path: Path | None = None) -> str:
    """Compile the library; returns a sentence that says what became of it."""
    path = path or library()
    if not _possible():
        return "fast matrix products need no library here"
    if why := c_library.build(_SOURCE, path, "-O1"):
        return f"{why}: on an AMD processor, matrix products stay slow"
    return f"fast matrix products of AMD processors: {path}"


def use() -> None:
    """Load the library where it is wanted and helps; call it before torch is imported. Never fails."""
    global _state
    _state = _load()


def state() -> Products:
    """What :func:`use` did in this process."""
    return _state


def _load() -> Products:
    with contextlib.suppress(UsageError):  # said by whoever starts the step
        if not switch.wanted():
            return Products(False, f"switched off ({switch.VARIABLE}=0 or gpu.fast=false)")
    if not _possible() or processor.facts().get("vendor_id") != "AuthenticAMD":
        return Products(False, "as torch has them: the processor is not AMD's")
    if "torch" in sys.modules:
        return Products(False, "slow: torch was loaded before gpam_fairseq", slow=True)
    path = library()
    if not path.is_file():
        return Products(False, f"slow: {path} is missing; install a C compiler and run 'make setup' again", slow=True)
    try:
        if not c_library.is_whole(path):
            raise OSError("it was changed after it was built")
        answer = getattr(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL), FUNCTION)()
    except (OSError, AttributeError) as error:
        return Products(False, f"slow: {path} cannot be used ({error}); run 'make setup' again", slow=True)
    return Products(answer == 1, f"fast: {path}")


def _possible() -> bool:
    return sys.platform == "linux" and platform.machine() == "x86_64"
