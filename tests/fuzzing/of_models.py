"""Checkpoints and exported models, against the parameters that were saved."""

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import strategies as st
from omegaconf import OmegaConf
from runs import composed, sizes
from safetensors.torch import save_model

from fuzzing.damage import damaged
from fuzzing.judge import REFUSED, Broken, outcome, refused
from fuzzing.of_records import changed
from fuzzing.target import Target, memory_folder
from gpam_suite.common import strict_json
from gpam_suite.common.files import sha256
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.data.binarise import load_dictionary
from gpam_suite.evaluate.checkpoint import read_checkpoint
from gpam_suite.tools.pretrained import FORMAT, load


def _state() -> dict[str, Any]:
    return {
        "args": None,
        "cfg": {"model": {"_name": "gpam_lm"}, "task": {"_name": "language_modeling"}},
        "model": {"decoder.embed_tokens.weight": torch.arange(6.0).view(3, 2), "decoder.version": torch.ones(1)},
        "criterion": None,
        "optimizer_history": [
            {"num_updates": 3, "criterion_name": "x", "optimizer_name": "y", "lr_scheduler_state": {}}
        ],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}, "previous_training_time": 1.5},
        "last_optimizer_state": None,
    }


def saved(folder: Path) -> tuple[bytes, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    contents = []
    for zipped in (True, False):
        path = folder / "whole.pt"
        torch.save(_state(), path, _use_new_zipfile_serialization=zipped)
        contents.append(path.read_bytes())
        path.unlink()
    return tuple(contents)


@cache
def _whole() -> bytes:
    with memory_folder() as folder:
        return saved(folder / "whole")[0]


def checkpoint(content: bytes, folder: Path) -> None:
    path = folder / "damaged.pt"
    path.write_bytes(content)
    found = outcome(lambda: read_checkpoint(path))
    if refused(found, intact=content == _whole()):
        return
    saved = _state()["model"]
    zipped = content.startswith(b"PK")  # with checksums; torch's old format has none
    same = found["model"].keys() == saved.keys() and all(
        torch.equal(found["model"][name], saved[name]) for name in saved
    )
    if zipped and not same:
        raise Broken(f"{content!r} was read as {found['model']}")


@cache
def _exported() -> dict[str, Any]:
    """A language model of 250 parameters, as scripts/export.py would write it: its ``files`` and its ``config``."""
    small = sizes("decoder", layers=1, embed_dim=8, ffn_embed_dim=8, attention_heads=2)
    complete = fairseq_config(composed("model=dagpam", *small, "fairseq.task.tokens_per_sample=8"))
    from fairseq.models import build_model

    with memory_folder() as folder:
        (folder / "dict.txt").write_text("a 3\nb 2\nc 1\nd 1\n", encoding="utf-8")
        dictionary = load_dictionary(folder / "dict.txt")
        model = build_model(complete.model, SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary))
        save_model(model, str(folder / "model.safetensors"))
        files = {name: (folder / name).read_bytes() for name in ("dict.txt", "model.safetensors")}
    config = {
        "format": FORMAT,
        "task": "lm",
        "unit": "word",
        "languages": ["en"],
        "preprocessing": {"tokenizer": "none", "bpe": "none"},
        "evaluation": {"max_tokens": 64, "context_window": 2, "checkpoint": "best"},
        "dictionaries": ["dict.txt"],
        "fairseq": {name: OmegaConf.to_container(complete[name]) for name in ("task", "model")},
        "files": {name: sha256(content) for name, content in files.items()},
    }
    return {"files": files, "config": config}


def _pretrained(case: tuple[str, Any], folder: Path) -> None:
    """Parameters and dictionary cannot change unnoticed: their checksums are in the configuration. The configuration's
    own is made anew, so that what it says is read."""
    kind, content = case
    exported = _exported()
    for name, whole in exported["files"].items():
        (folder / name).write_bytes(content if name == kind else whole)
    try:
        config = content if kind == "config" else exported["config"]
        text = strict_json.summed(config) if isinstance(config, dict) else json.dumps(config)
    except (ValueError, UnicodeEncodeError):
        return
    (folder / "config.json").write_text(text, encoding="utf-8")
    found = outcome(lambda: load(folder))
    whole = content == exported["config"] if kind == "config" else content == exported["files"][kind]
    if found is REFUSED and whole:
        raise Broken("the model as it was exported was refused")
    if found is not REFUSED and kind != "config" and not whole:
        raise Broken(f"a changed {kind} was taken")
    if found is not REFUSED:
        score = outcome(lambda: found.score("a b c\nd a\n"))
        if score is not REFUSED and not score.perplexity > 0:
            raise Broken(f"a perplexity of {score.perplexity}")


def _models(_: Path) -> st.SearchStrategy:
    exported = _exported()
    files = [st.tuples(st.just(name), damaged(content)) for name, content in exported["files"].items()]
    return st.one_of(st.tuples(st.just("config"), changed(exported["config"])), *files)


TARGETS = (
    Target("checkpoints", lambda folder: damaged(*saved(folder)), checkpoint, 500, 60),
    Target("exported models", _models, _pretrained, 120, 20),
)
