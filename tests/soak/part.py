"""What a promise is: a sentence, the test that fails when it is broken, the part of ``make soak`` with its figure."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Figures = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """One promise.

    ``test`` is its sample in CI, as pytest names it. ``work`` is ``module:function``: the function takes nothing,
    returns figures (JSON) and raises where the promise is broken; its docstring's first sentence says what it does.
    ``figure`` is the sentence of the page, filled with them. A promise without ``work`` is covered by its test whole.
    """

    name: str
    section: str
    promise: str
    test: str
    work: str | None = None
    figure: str = ""

    def function(self) -> Callable[[], Figures]:
        """What :attr:`work` names."""
        assert self.work is not None
        module, _, name = self.work.partition(":")
        return getattr(importlib.import_module(module), name)
