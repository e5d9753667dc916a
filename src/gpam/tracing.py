"""Whether operators run as they are called: where not, no number may be looked at and no memory read past PyTorch."""

import torch
from torch._C import _get_dispatch_mode as active
from torch._C import _TorchDispatchModeKey as Mode
from torch._C._functorch import maybe_current_level


def runs_as_called() -> bool:
    """Not so under torch.compile, torch.export, torch.jit and ``make_fx``, with fake tensors, and in ``torch.func``."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()
    recorded = recorded or active(Mode.PROXY) is not None or active(Mode.FAKE) is not None
    return not (recorded or is_transformed())


def is_transformed() -> bool:
    """Whether ``torch.func`` (vmap, grad, jvp and what is made of them) changes what operators do."""
    return maybe_current_level() is not None
