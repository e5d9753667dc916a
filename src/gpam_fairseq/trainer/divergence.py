"""Where a training stopped being a number: the update, and the first module or parameter that was not finite."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from gpam_fairseq.trainer.replacing import replaced

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


class Diverged(Exception):
    """The loss, a gradient or a parameter stopped being a number; says at which update and where."""


@contextlib.contextmanager
def located_divergence() -> Iterator[None]:
    """While this holds, a gradient of fairseq's trainer that is not finite ends training with what was found first; so
    does a batch for which a GPU has no memory, which fairseq would leave out.

    fairseq does the update again under a detector of its own, which prints; here that is :class:`_Detector`.

    Raises:
        Diverged: instead of fairseq's FloatingPointError.
    """
    from fairseq import trainer

    stock, found = trainer.Trainer.train_step, []

    def train_step(self: Any, samples: Any, raise_oom: bool = True) -> Any:
        found[:] = [f"update {self.get_num_updates() + 1}"]
        with replaced(trainer, NanDetector=lambda model: _Detector(model, self, found)):
            return stock(self, samples, raise_oom)

    try:
        with replaced(trainer.Trainer, train_step=train_step):
            yield
    except FloatingPointError as error:
        place = found[1] if len(found) > 1 else "done again, that update gave numbers"
        said = str(error).partition("\n")[0]
        raise Diverged(f"{found[0]}: {place} ({said})" if found else said) from None


class _Detector:
    """Appends to ``found`` what is first not finite: a parameter, an output, or a gradient on the way from the loss."""

    def __init__(self, model: nn.Module, trainer: Any, found: list[str]) -> None:
        self.model, self.trainer, self.found = model, trainer, found
        self.handles: list[Any] = []

    def __enter__(self) -> None:
        self.trainer._set_seed()  # the dropout of the update that is done again
        if name := not_finite(dict(self.model.named_parameters())):
            self.found.append(f"parameter {name} is not finite")
        for path, module in self.model.named_modules():
            self.handles.append(module.register_forward_hook(self._output(path)))

    def _output(self, path: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            leaves = tree_leaves(output) if len(self.found) == 1 else []
            if not all(bool(torch.isfinite(x).all()) for x in leaves if isinstance(x, Tensor)):
                self.found.append(f"the output of {path or type(module).__name__} is not finite")

        return hook

    def __exit__(self, *_: object) -> None:
        for handle in self.handles:
            handle.remove()
        for name, parameter in reversed(list(self.model.named_parameters())):
            if len(self.found) == 1 and parameter.grad is not None and not bool(torch.isfinite(parameter.grad).all()):
                self.found.append(f"the gradient of {name} is not finite")


def not_finite(parameters: Mapping[str, Tensor]) -> str | None:
    """The name of the first of ``parameters`` that is not finite."""
    return next((name for name, value in parameters.items() if not bool(torch.isfinite(value).all())), None)
