"""Whether operators run as they are called: where not, no number may be looked at and no memory read past PyTorch; and
in which dtype, where autocast is on."""

import contextlib

import torch
from torch import Tensor
from torch._C import _get_dispatch_mode as active
from torch._C import _TorchDispatchModeKey as Mode
from torch._C._functorch import maybe_current_level


def runs_as_called() -> bool:
    """Not so under torch.compile, torch.export, torch.jit and ``make_fx``, with fake tensors, and in ``torch.func``."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # first: a compiler cannot look at what comes then
        return False
    return active(Mode.PROXY) is None and active(Mode.FAKE) is None and not is_transformed()


def is_transformed() -> bool:
    """Whether ``torch.func`` (vmap, grad, jvp and what is made of them) changes what operators do."""
    return maybe_current_level() is not None


def casts(device: str) -> bool:
    """Whether autocast is on, which takes any dtype; torch's meta device has none."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def without_autocast(device: str) -> contextlib.AbstractContextManager[object]:
    """Products in the dtype of their factors, whatever autocast would make of them."""
    return torch.autocast(device, enabled=False) if casts(device) else contextlib.nullcontext()


def dtype_of_products(x: Tensor) -> torch.dtype:
    """In which products with ``x`` are computed: autocast's where it is on, but float64 stays."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if casts(device) and x.dtype != torch.float64 else x.dtype


def in_autocasts_dtype(*given: Tensor) -> list[Tensor]:
    """As torch's own attention takes them where autocast is on."""
    cast = {id(one): one.to(dtype_of_products(one)) for one in given}
    return [cast[id(one)] for one in given]  # one tensor that was given twice stays one
