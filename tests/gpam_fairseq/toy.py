"""Toy corpora and tiny models for the tests of the plugin, made and run through the plugin's own commands."""

import argparse
import copy
import functools
import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from gpam_fairseq.__main__ import main

import torch
from fairseq import options, utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

WORDS = ("sun", "moon", "star", "sea", "hill", "tree", "bird", "fish", "rain", "snow", "wind", "leaf")
#: A stack of fairseq's transformer at a size that trains in seconds; ``sizes("encoder", "decoder")``.
SMALL = {"layers": 2, "embed_dim": 32, "ffn_embed_dim": 48, "attention_heads": 4}


def sizes(*stacks: str) -> list[str]:
    return flags({f"{stack}_{name}": size for stack in stacks for name, size in SMALL.items()})


def flags(values: dict[str, Any]) -> list[str]:
    """``{"max_update": 3}`` to ``["--max-update", "3"]``; a true value is a bare flag."""
    return [
        text
        for name, value in values.items()
        for text in ([f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)]))
    ]


def gpam(*arguments: object) -> int:
    """``python -m gpam_fairseq ARGUMENTS`` in this process: its exit code."""
    with mock.patch.object(sys, "argv", ["gpam_fairseq", *map(str, arguments)]):
        try:
            return main()
        except SystemExit as leaving:
            return leaving.code


def train(data: Path, folder: Path, arch: str, *more: object, **settings: Any) -> int:
    """``train`` a small model with Adam into ``folder``: its exit code."""
    return gpam(*train_arguments(data, folder, arch, *more, **settings))


def train_arguments(data: Path, folder: Path, arch: str, *more: object, **settings: Any) -> list[object]:
    usual = {"optimizer": "adam", "lr": 0.005, "max_tokens": 300, "num_workers": 0, "no_epoch_checkpoints": True}
    if "_lm" in arch:
        usual |= {"task": "language_modeling", "tokens_per_sample": 24}
    stacks = ("decoder",) if "_lm" in arch else ("encoder", "decoder")
    return ["train", data, *flags({"arch": arch, "save_dir": folder, **usual, **settings}), *sizes(*stacks), *more]


def sentences(count: int, seed: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [draw.choices(WORDS, k=draw.randint(2, 6)) for _ in range(count)]


def translation(sentence: list[str]) -> list[str]:
    """Word for word from right to left: attention has to look everywhere, and it can be undone."""
    return [f"{word}'" for word in reversed(sentence)]


def write_parallel(folder: Path) -> Path:
    """Binarised source and target of three splits."""
    languages = flags({"source_lang": "src", "target_lang": "tgt"})
    return _binarised(folder, 160, {".src": lambda s: s, ".tgt": translation}, *languages)


def write_lines(folder: Path) -> Path:
    """Binarised text of three splits, each sentence followed by its translation."""
    return _binarised(folder, 120, {"": lambda s: s + translation(s)}, "--only-source")


def _binarised(folder: Path, trained: int, texts: dict[str, Callable[[list[str]], list[str]]], *more: str) -> Path:
    """``texts`` maps the end of a file's name to what it holds of each sentence."""
    raw, counts = folder / "raw", {"train": trained, "valid": 12, "test": 12}
    raw.mkdir(parents=True)
    for seed, (split, count) in enumerate(counts.items()):
        for ending, text in texts.items():
            (raw / f"{split}{ending}").write_text("".join(" ".join(text(s)) + "\n" for s in sentences(count, seed)))
    split_files = flags({f"{split}pref": raw / split for split in counts})
    assert gpam("preprocess", *more, *split_files, "--destdir", folder / "bin") == 0
    return folder / "bin"


def training_config(*arguments: object) -> Any:
    """fairseq's configuration, as its own command makes it of these arguments."""
    argv = [str(argument) for argument in arguments]
    with mock.patch.object(sys, "argv", ["train", *argv]):
        namespace: argparse.Namespace = options.parse_args_and_arch(options.get_training_parser(), argv)
    return convert_namespace_to_omegaconf(namespace)


def dictionary(types: int = len(WORDS) + 4) -> Dictionary:
    """``types`` entries, with the four that fairseq adds itself."""
    entries = Dictionary()
    for word in range(types - entries.nspecial):
        entries.add_symbol(f"w{word}")
    return entries


def build(
    *arguments: object, source: Dictionary | None = None, target: Dictionary | None = None, seed: int = 1
) -> torch.nn.Module:
    """A model as ``train`` builds it, without a corpus."""
    from fairseq import models

    source = source or dictionary()
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target or source)
    with utils.set_torch_seed(seed):
        return models.build_model(copy.deepcopy(_model_config(*map(str, arguments))), task)


@functools.cache
def _model_config(*arguments: str) -> Any:
    """Composing it takes longer than everything else about a small model."""
    return training_config("no-data", *arguments).model


def mechanisms(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Path and mechanism of every attention module."""
    return ((path, module.mechanism) for path, module in model.named_modules() if hasattr(module, "mechanism"))


def shared(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state dict without the mechanisms' own parameters."""
    return {name: tensor for name, tensor in state.items() if ".mechanism." not in name}


def padded_batch(words: Dictionary, lengths: Iterable[int], seed: int = 0) -> torch.Tensor:
    """Sentences ending in ``</s>``, with the padding on the left, as fairseq's translation task has them."""
    lengths = list(lengths)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.full((len(lengths), max(lengths)), words.pad())
    for row, length in zip(rows, lengths, strict=True):
        row[-length:] = torch.randint(words.nspecial, len(words), (length,), generator=generator)
        row[-1] = words.eos()
    return rows


class Hostile:
    """Unpickled, it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable, tuple[str]]:
        return os.mkdir, (str(self.trace),)
