"""Runs with random overrides put into one table: what differs is refused, or stands in the name of the row."""

import random
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from record_factory import make_record
from runs import TINY_LM, composed, places

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.config.compose import check, folder_of, identity, overrides_label
from gpam_suite.config.fairseq_tree import fairseq_config, model_options
from gpam_suite.config.identity import CONFIG, config_hash
from gpam_suite.records.folder import Record, read_record, write_record
from gpam_suite.records.settings import BATCH, MAX_TOKENS, MAY_DIFFER, UPDATE_FREQ, all_settings, tokens_per_update
from gpam_suite.stats.aggregate import aggregate
from gpam_suite.stats.rows import Row
from soak.parts import Figures

_OURS = [
    "gpu.threads=2",
    "gpu.precision=bf16",
    "gpu.fast=false",
    "preprocessing.bpe_size=61",
    "preprocessing.lowercase=true",
    "evaluation.context_window=5",
    "evaluation.checkpoint=last",
    "evaluation.max_tokens=2048",
    "dataset.language=de",
    "model.attention=sigmoid",
    "model.label=another",
    "recipe=short_lm",
]
"""Overrides beside fairseq's own options."""


_USUAL = (("softmax", 1), ("softmax", 2), ("dagpam", 1))


def soak() -> Figures:
    """300 runs with one to three random overrides, each in the table of three runs without."""
    return campaign(300)


def campaign(count: int, seed: int = 0) -> Figures:
    """``count`` strays, each put into the table of three usual runs.

    Raises:
        AssertionError: a table mixes what differs without a word.
    """
    draw, found = random.Random(seed), Counter(refused=0, not_one_table=0, own_row=0, row_with_others=0)
    with tempfile.TemporaryDirectory() as folder:
        usual = [_record(_composed(folder, f"model={model}", f"seed={k}")) for model, k in _USUAL]
        options = [*_OURS, *_of_fairseq(_composed(folder))]
        for _ in range(count):
            words = draw.sample(options, draw.randint(1, 3))
            found[_judged(folder, [f"model={draw.choice(('softmax', 'dagpam'))}", "seed=9", *words], usual)] += 1
    return {"runs": count, "options": len(options), **found}


def _composed(folder: str, *words: str) -> DictConfig:
    return composed(*TINY_LM, *places(Path(folder)), "dataset.folder=text", *words)


def _of_fairseq(cfg: DictConfig) -> list[str]:
    """An override of each of fairseq's options that is a number, a switch, or a list of numbers."""
    found = []

    def walk(node: Any, path: str) -> None:
        for key, value in node.items():
            name = f"{path}.{key}"
            if isinstance(value, dict):
                walk(value, name)
            elif isinstance(value, bool):
                found.append(f"++{name}={str(not value).lower()}")
            elif isinstance(value, int | float):
                found.append(f"++{name}={value + 1}")
            elif isinstance(value, list) and value and isinstance(value[0], int | float):
                found.append(f"++{name}=[{2 * value[0]}]")

    walk(OmegaConf.to_container(fairseq_config(cfg)), "fairseq")
    return found


def _record(cfg: DictConfig) -> Record:
    """A made-up record of a run with this configuration, and the configuration."""
    check(cfg)
    settings, folder = identity(cfg), folder_of(cfg)
    write_atomically(folder / CONFIG, OmegaConf.to_yaml(OmegaConf.create(settings)))
    record = make_record(experiment=cfg.experiment_name, model=cfg.model.name, seed=cfg.seed)
    record |= {"options": model_options(cfg), "overrides_label": overrides_label(cfg), "recipe": cfg.recipe.name}
    write_record(folder, record | {"model_label": cfg.model.label, "config_hash": config_hash(settings)})
    return read_record(folder)


def _judged(folder: str, words: list[str], usual: list[Record]) -> str:
    """What became of a run with the overrides ``words``: refused before it starts, by the table, or a row."""
    try:
        stray = _record(_composed(folder, *words))
    except UsageError:
        return "refused"
    differing = _differing(stray, next(record for record in usual if record["model"] == stray["model"]))
    try:
        rows = aggregate([*usual, stray]).rows
    except UsageError as error:
        named = [key for key in differing if not _may_differ(key)]
        assert any(key in str(error) for key in [*named, "recipe", "label"]), f"{words}: {error}"
        return "not_one_table"
    (row,) = (row for row in rows if stray in row.records)
    unnamed = [key for key in differing if not _may_differ(key) and not _named(key, row)]
    assert not unnamed, f"{words} stand in the row '{row.label}', which does not say {unnamed}"
    return "row_with_others" if len(row.records) > 1 else "own_row"


def _differing(one: Record, other: Record) -> list[str]:
    """The settings in which two runs differ, the batch as tokens an update."""
    sides = [all_settings(record.config) for record in (one, other)]
    for settings in sides:
        settings[BATCH] = tokens_per_update(settings)
        for key in (MAX_TOKENS, UPDATE_FREQ):
            settings.pop(key, None)
    return [key for key in {**sides[0], **sides[1]} if sides[0].get(key) != sides[1].get(key)]


def _may_differ(key: str) -> bool:
    return not key.startswith("model.") and any(re.fullmatch(pattern, key) for pattern in MAY_DIFFER)


def _named(key: str, row: Row) -> bool:
    return key.rpartition(".")[2] in row.label or key == "model.label"
