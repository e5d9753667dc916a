"""Makes fairseq 0.12.2 importable and correct under Python 3.11, Hydra 1.3, OmegaConf 2.3, numpy 2, torch 2.6 or later.

Import this module before fairseq, in every process. It knows what keeps fairseq from being imported, or makes its
numbers wrong; what its trainer lacks is in ``trainer/``:

1. Python 3.11 refuses dataclass defaults without a hash, which two of fairseq's configurations have.
2. fairseq unpickles a checkpoint whole, which runs whatever code the file names. Here it takes tensors, plain data
   and an ``argparse.Namespace`` (which fairseq's own checkpoints hold), and refuses anything else. So it does wherever
   else it calls ``torch.load``. It compares the sums that torch writes and does not read, and takes the configuration
   inside for plain text (:mod:`gpam_fairseq.untrusted`).
3. fairseq composes its configuration with Hydra's 1.0 interface, which fails inside a Hydra 1.3 application.
4. 0.12.2's encoder layer keeps a second, untrained copy of its weights and, in evaluation after loading a
   checkpoint, bypasses its attention module for a private softmax kernel. Under another mechanism that would be a
   wrong result without a word (later fairseq removed it).
5. numpy 2 removed ``numpy.compat``, which ``--sample-break-mode eos`` uses.
6. Sinusoidal positions and the adaptive input and softmax carry a buffer of uninitialised memory into every
   checkpoint. It is never read, but the checkpoints of two equal trainings differ by it, and now and then it is NaN,
   as if the training had diverged.
7. fairseq evaluates texts of its options (``adam_betas``, ``encoder_layers``) and of a checkpoint's configuration as
   Python, and gives the path of a FASTA file to a shell. Here it reads literals, their sums and repetitions, and calls
   no shell.
8. fairseq imports wandb in every process, used or not: a seventh of the processor time of a start. It is imported
   when something of it is asked for.
9. Where a GPU is visible, it takes the norm of the gradients to it, and cannot clip those of a training on the CPU.
10. In half precision its adaptive loss is summed up in half precision: in float16 to infinity, once it is of a few
    thousand tokens. Gradients do not suffer, but what is logged and what chooses the best checkpoint does.
11. ``--bf16`` on a command line is taken for ``--tpu``, and then fails on a GPU.
12. ``score`` makes its scorer of three numbers, which takes one configuration, and gives sacrebleu open files, which
    takes lists. Of two texts of different length it scores what both have, without a word.
13. fairseq registers a hundred configurations with Hydra, which copies them whenever anybody composes one, for a third
    of the time, and would take one of them for a choice of ours (``model=lstm_lm``). Here they are in a store of their
    own.

Nothing outside fairseq is changed. A repair that a fairseq does not need does nothing.
"""

import contextlib
import dataclasses
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from gpam_fairseq.trainer.replacing import replaced
from gpam_fairseq.untrusted import literal, load_without_executing

import hydra
import numpy
import torch
from hydra.core.config_store import ConfigStore
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

    with replaced(dataclasses, dataclass=dataclass):
        yield


class _ModuleWith(types.ModuleType):
    """``module`` with other ``attributes``, as one of fairseq's modules sees it (repairs 2 and 5)."""

    def __init__(self, module: types.ModuleType, **attributes: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(attributes)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _no_shell(*_: Any, **__: Any) -> Any:
    raise UsageError("dataset_impl=fasta would give a path to a shell and is switched off; use mmap, cached or lazy")


class _Guarded(importlib.machinery.SourceFileLoader):
    """Loads a module of fairseq with ``eval``, ``torch.load`` and shells that run no stranger's code (2 and 7), and
    ``score`` with our :func:`pairs_of_lines`."""

    def exec_module(self, module: types.ModuleType) -> None:
        module.eval = literal
        if module.__name__ == "fairseq_cli.score":
            module.zip = pairs_of_lines
        super().exec_module(module)
        source = self.get_data(self.path)
        if b"torch.load(" in source and getattr(module, "torch", None) is torch:
            module.torch = _ModuleWith(torch, load=load_without_executing)
        if b"shell=True" in source:
            module.subprocess = types.SimpleNamespace(check_output=_no_shell)


class _GuardedImports(importlib.abc.MetaPathFinder):
    """Finds fairseq's modules, whenever they are imported, for :class:`_Guarded`."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in ("fairseq", "fairseq_cli"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Guarded(spec.loader.name, spec.loader.path)
        return spec


_STORE = object.__new__(ConfigStore)
_STORE.repo = {}


@contextlib.contextmanager
def fairseqs_store() -> Iterator[None]:
    """Repair 13: while this holds, what is registered and composed is fairseq's. Hydra's own part is in both stores, as
    its plugins register when it first composes; what a ``--user-dir`` has registered is copied."""
    ours = ConfigStore.instance()
    for name, found in ours.repo.items():
        if name == "hydra" or not isinstance(found, dict):
            _STORE.repo[name] = found
        else:
            _STORE.repo.setdefault(name, {}).update(found)
    Singleton._instances[ConfigStore] = _STORE
    try:
        yield
    finally:
        Singleton._instances[ConfigStore] = ours


@contextlib.contextmanager
def _hydra_as_fairseq_knows_it(config_path: str | None = None) -> Iterator[None]:
    """Repair 3: compose fairseq's own defaults under Hydra's 1.1 rules and leave an application around it alone."""
    running = {kind: Singleton._instances.pop(kind, None) for kind in (GlobalHydra, VersionBase)}
    try:
        with fairseqs_store(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with hydra.initialize_config_module("fairseq.config", version_base="1.1"):
                yield
    finally:
        for kind, instance in running.items():
            Singleton._instances.pop(kind, None)
            if instance is not None:
                Singleton._instances[kind] = instance


_SECOND_WEIGHTS = tuple(f"{of}_{kind}" for of in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias"))


def _without_second_weights(layer: type) -> None:
    """Repair 4; checkpoints of stock fairseq hold them."""
    if "_load_from_state_dict" not in vars(layer):
        return
    stock_init = layer.__init__

    @functools.wraps(stock_init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_init(self, *args, **kwargs)
        self.can_use_fastpath = False
        for name in _SECOND_WEIGHTS:
            delattr(self, name)

    def _load_from_state_dict(self: Any, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        for name in _SECOND_WEIGHTS:
            state_dict.pop(prefix + name, None)
        super(layer, self)._load_from_state_dict(state_dict, prefix, *others)

    layer.__init__, layer._load_from_state_dict = __init__, _load_from_state_dict


def _with_zeros(layer: type) -> None:
    """Repair 6, for the buffer as it is made and as it is again when a checkpoint is loaded."""

    def zeroed(stock: Any) -> Any:
        @functools.wraps(stock)
        def method(self: Any, *args: Any, **kwargs: Any) -> None:
            stock(self, *args, **kwargs)
            if "_float_tensor" in self._buffers:
                self._float_tensor.zero_()

        return method

    layer.__init__, layer._load_from_state_dict = zeroed(layer.__init__), zeroed(layer._load_from_state_dict)


def _clips_on_the_cpu(stock: Any) -> Any:
    """Repair 9: the same operations, where the gradients are."""

    @functools.wraps(stock)
    def clip_grad_norm_(params: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        if not torch.cuda.is_available():
            return stock(params, *args, **kwargs)
        params = [params] if isinstance(params, torch.Tensor) else list(params)
        on_cpu = all(parameter.grad is None or parameter.grad.device.type == "cpu" for parameter in params)
        with replaced(torch.cuda, is_available=lambda: False) if on_cpu else contextlib.nullcontext():
            return stock(params, *args, **kwargs)

    return clip_grad_norm_


def _summed_in_float32(criterion: type) -> None:
    """Repair 10; in float32 the same bits as before."""

    def forward(self: Any, model: Any, sample: Any, reduce: bool = True) -> tuple[torch.Tensor, int, dict[str, Any]]:
        output = model(**sample["net_input"])
        target = model.get_targets(sample, output)
        logits, wanted = model.decoder.adaptive_softmax(output[0], target.view(-1))
        loss = output[0].new_zeros(1 if reduce else target.numel(), dtype=torch.float32)
        for own, classes in zip(logits, wanted, strict=True):
            if classes is not None:
                reduction = "sum" if reduce else "none"
                loss += torch.nn.functional.cross_entropy(
                    own.float(), classes, ignore_index=self.padding_idx, reduction=reduction
                )
        tokens = int(target.ne(self.padding_idx).sum())
        size = target.size(0) if self.sentence_avg else tokens
        logged = {"loss": loss.data, "ntokens": tokens, "nsentences": target.size(0), "sample_size": size}
        return loss, size, logged

    criterion.forward = forward


def _no_tpu_unasked(stock: Any) -> Any:
    """Repair 11."""

    @functools.wraps(stock)
    def parse_args_and_arch(parser: Any, input_args: Any = None, *args: Any, **kwargs: Any) -> Any:
        found = stock(parser, input_args, *args, **kwargs)
        options = found[0] if isinstance(found, tuple) else found
        if hasattr(options, "tpu"):
            options.tpu = "--tpu" in (sys.argv if input_args is None else input_args)
        return found

    return parse_args_and_arch


def _of_three_numbers(scorer: type) -> None:
    """Repair 12, of ``--sentence-bleu``."""
    stock_init = scorer.__init__

    @functools.wraps(stock_init)
    def __init__(self: Any, cfg: Any, *others: int) -> None:
        stock_init(self, types.SimpleNamespace(pad=cfg, eos=others[0], unk=others[1]) if others else cfg)

    scorer.__init__ = __init__


def pairs_of_lines(system: Iterable[str], reference: Iterable[str]) -> list[tuple[str, str]]:
    """Repair 12, of two texts.

    Raises:
        UsageError: one has more lines than the other, or the system's has no word.
    """
    ours, theirs = list(system), list(reference)
    if len(ours) != len(theirs):
        raise UsageError(
            f"lines: got {len(ours)} of the system for {len(theirs)} of the reference; wanted a translation a line for "
            "each (empty where there is none)"
        )
    if not any(line.split() for line in ours):
        raise UsageError("the system's text is empty; wanted a translation a line for each of the reference")
    return list(zip(ours, theirs, strict=True))


@contextlib.contextmanager
def lists_for_sacrebleu() -> Iterator[None]:
    """Repair 12, of ``score --sacrebleu``, while this holds."""
    import sacrebleu

    stock = sacrebleu.corpus_bleu

    def corpus_bleu(system: Iterable[str], references: Iterable[Iterable[str]]) -> Any:
        (reference,) = references
        ours, theirs = zip(*pairs_of_lines(system, reference), strict=True)
        return stock(ours, [theirs])

    with replaced(sacrebleu, corpus_bleu=corpus_bleu):
        yield


class _WhenAsked(types.ModuleType):
    """The module of this name, imported when something of it is asked for (repair 8)."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)


@contextlib.contextmanager
def _without_wandb() -> Iterator[None]:
    """Repair 8: fairseq's progress bar finds no wandb while it is imported; then it has one that comes when asked."""
    if "wandb" in sys.modules or importlib.util.find_spec("wandb") is None:
        yield
        return
    sys.modules["wandb"] = None
    try:
        yield
    finally:
        del sys.modules["wandb"]
    sys.modules["fairseq.logging.progress_bar"].wandb = _WhenAsked("wandb")


def _repair() -> None:
    sys.meta_path.insert(0, _GuardedImports())
    try:
        with _dataclasses_keep_their_hash(), _without_wandb(), fairseqs_store():
            import fairseq  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "fairseq":
            raise
        raise UsageError("fairseq is not installed; run 'make setup' (it adds fairseq 0.12.2 with --no-deps)") from None
    from fairseq import options, utils
    from fairseq.criterions import adaptive_loss
    from fairseq.data import token_block_dataset
    from fairseq.dataclass import utils as dataclass_utils
    from fairseq.modules import adaptive_input, adaptive_softmax, sinusoidal_positional_embedding, transformer_layer
    from fairseq.scoring import bleu

    utils.clip_grad_norm_ = _clips_on_the_cpu(utils.clip_grad_norm_)
    token_block_dataset.np = _ModuleWith(numpy, compat=types.SimpleNamespace(long=int))
    dataclass_utils.initialize = _hydra_as_fairseq_knows_it
    dataclass_utils.compose = lambda name, overrides, strict=None: hydra.compose(name, overrides)
    nothing_to_clear = types.SimpleNamespace(clear=lambda: None)
    dataclass_utils.GlobalHydra = types.SimpleNamespace(instance=lambda: nothing_to_clear)
    _without_second_weights(transformer_layer.TransformerEncoderLayerBase)
    for layer in (
        sinusoidal_positional_embedding.SinusoidalPositionalEmbedding,
        adaptive_input.AdaptiveInput,
        adaptive_softmax.TiedHeadModule,
    ):
        _with_zeros(layer)
    options.parse_args_and_arch = _no_tpu_unasked(options.parse_args_and_arch)
    _summed_in_float32(adaptive_loss.AdaptiveLoss)
    _of_three_numbers(bleu.Scorer)


_repair()
