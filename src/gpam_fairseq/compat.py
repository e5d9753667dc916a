"""Makes fairseq 0.12.2 importable and correct under Python 3.11, Hydra 1.3, OmegaConf 2.3, numpy 2, torch 2.6 or later.

Import this module before fairseq, in every process. It is the only place that knows what is wrong with fairseq:

1. Python 3.11 refuses dataclass defaults without a hash, which two of fairseq's configurations have.
2. fairseq unpickles a checkpoint whole, which runs whatever code the file names. Here it takes tensors, plain data
   and an ``argparse.Namespace`` (which fairseq's own checkpoints hold), and refuses anything else.
3. fairseq composes its configuration with Hydra's 1.0 interface, which fails inside a Hydra 1.3 application.
4. 0.12.2's encoder layer keeps a second, untrained copy of its weights and, in evaluation after loading a
   checkpoint, bypasses its attention module for a private softmax kernel. Under another mechanism that would be a
   wrong result without a word (later fairseq removed it).
5. numpy 2 removed ``numpy.compat``, which ``--sample-break-mode eos`` uses.

Nothing outside fairseq is changed. A repair that a fairseq does not need does nothing.
"""

import argparse
import contextlib
import dataclasses
import functools
import pickle
import re
import types
import warnings
from collections.abc import Iterator
from typing import Any

import hydra
import numpy
import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton
from hydra.version import VersionBase

from gpam.errors import UsageError


@contextlib.contextmanager
def _dataclasses_keep_their_hash() -> Iterator[None]:
    """Repair 1: a fairseq dataclass hashes by identity, so that an instance may be a field's default."""
    original = dataclasses.dataclass

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        if cls is None:
            return lambda decorated: dataclass(decorated, **options)
        made = original(cls, **options)
        if made.__hash__ is None and made.__module__.split(".")[0] == "fairseq":
            made.__hash__ = object.__hash__
        return made

    dataclasses.dataclass = dataclass
    try:
        yield
    finally:
        dataclasses.dataclass = original


class _ModuleWith(types.ModuleType):
    """``module`` with other ``attributes``, as one of fairseq's modules sees it (repairs 2 and 5)."""

    def __init__(self, module: types.ModuleType, **attributes: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(attributes)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _load_without_executing(file: Any, **options: Any) -> Any:
    """Repair 2: ``torch.load`` for a file that a stranger may have made.

    Raises:
        UsageError: it holds an object of another type.
    """
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(file, **options | {"weights_only": True})
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        if found is None:
            raise
        raise UsageError(
            f"checkpoint {getattr(file, 'name', file)} holds an object of type {found[1]}, and making it could run any "
            "code: only tensors and plain data are loaded; use a checkpoint that this suite or fairseq's trainer wrote"
        ) from None


@contextlib.contextmanager
def _hydra_as_fairseq_knows_it(config_path: str | None = None) -> Iterator[None]:
    """Repair 3: compose fairseq's own defaults under Hydra's 1.1 rules and leave an application around it alone."""
    running = {kind: Singleton._instances.pop(kind, None) for kind in (GlobalHydra, VersionBase)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with hydra.initialize_config_module("fairseq.config", version_base="1.1"):
                yield
    finally:
        for kind, instance in running.items():
            Singleton._instances.pop(kind, None)
            if instance is not None:
                Singleton._instances[kind] = instance


def _without_second_weights(layer: type) -> None:
    """Repair 4."""
    if "_load_from_state_dict" not in vars(layer):
        return
    stock_init = layer.__init__

    @functools.wraps(stock_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_init(self, *args, **kwargs)
        self.can_use_fastpath = False
        for copy in ("in_proj", "out_proj", "fc1", "fc2"):
            delattr(self, f"{copy}_weight")
            delattr(self, f"{copy}_bias")

    layer.__init__ = __init__
    del layer._load_from_state_dict


def _repair() -> None:
    try:
        with _dataclasses_keep_their_hash():
            import fairseq  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "fairseq":
            raise
        raise UsageError("fairseq is not installed; run 'make setup' (it adds fairseq 0.12.2 with --no-deps)") from None
    from fairseq import checkpoint_utils
    from fairseq.data import token_block_dataset
    from fairseq.dataclass import utils as dataclass_utils
    from fairseq.modules import transformer_layer

    checkpoint_utils.torch = _ModuleWith(torch, load=_load_without_executing)
    token_block_dataset.np = _ModuleWith(numpy, compat=types.SimpleNamespace(long=int))
    dataclass_utils.initialize = _hydra_as_fairseq_knows_it
    dataclass_utils.compose = lambda name, overrides, strict=None: hydra.compose(name, overrides)
    nothing_to_clear = types.SimpleNamespace(clear=lambda: None)
    dataclass_utils.GlobalHydra = types.SimpleNamespace(instance=lambda: nothing_to_clear)
    _without_second_weights(transformer_layer.TransformerEncoderLayerBase)


_repair()
