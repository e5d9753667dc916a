"""Sentences that do not fit: fairseq leaves them out of training, and fails at those to be validated or translated."""

import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError
from gpam_suite.common.tasks import TASKS
from gpam_suite.config.device_batches import share
from gpam_suite.data import Prepared
from gpam_suite.data.binarise import dictionary_name, load_dictionary
from gpam_suite.data.options import SPLITS
from gpam_suite.data.second_test import second_test_file
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import file_name, read_lines

log = logging.getLogger(__name__)

_BATCH = {
    "train": "fairseq.dataset.max_tokens",
    "valid": "fairseq.dataset.max_tokens_valid",
    "test": "evaluation.max_tokens",
    "second test set": "evaluation.max_tokens",
}
"""What a batch of each may hold."""


def check_lengths(
    evaluation: DictConfig, complete: DictConfig, prepared: Prepared, folder: Path, count: int = 1
) -> None:
    """Refuse a translation where a sentence to be validated or translated does not fit into a batch or the model. Of
    documents, which are cut into pieces of a length that somebody chose, and where devices take smaller batches than
    one would, a sentence of the training data too: else they would train on less.

    Args:
        complete: fairseq's complete configuration, before devices share an update.
        folder: where the second test set is kept, if there is one.
        count: devices that train.

    Raises:
        UsageError: with the option to raise.
    """
    if not TASKS[prepared.task].parallel:
        return
    options = OmegaConf.create({"evaluation": evaluation, "fairseq": complete})
    whole = complete.dataset.max_tokens
    share(options.fairseq, count)
    divided = options.fairseq.dataset.max_tokens != whole
    budget = prepared.manifest["dataset"].get("budget")
    splits = SPLITS[0 if divided or prepared.kind == "documents" else 1 :]
    for split, side, longest in _longest(evaluation, prepared, folder, splits):
        for name, limit in _limits(options, split, side).items():
            if limit < longest:
                said = f"{whole} for {count} devices" if divided and name == _BATCH["train"] else limit
                raise UsageError(
                    f"{name}={said} is less than the longest {side} of {prepared.manifest['name']} ({split}), "
                    f"{longest} tokens; raise it" + (f", or lower dataset.budget={budget}" if budget else "")
                )


def left_out(complete: DictConfig, prepared: Prepared) -> int:
    """How many training pairs do not fit into a batch or the model: fairseq leaves them out. The log tells of any."""
    if not TASKS[prepared.task].parallel:
        return 0
    options = OmegaConf.create({"fairseq": complete})
    limits = {side: _limits(options, "train", side) for side in ("source", "target")}
    most = [min(limits[side].values(), default=math.inf) for side in limits]
    sides = [_lengths(prepared, "train", language) for language in (prepared.source_lang, prepared.target_lang)]
    pairs = list(zip(*sides, strict=True))
    found = sum(any(length > limit for length, limit in zip(pair, most, strict=True)) for pair in pairs)
    if found:
        lowest = min((limit, name) for side in limits.values() for name, limit in side.items())
        log.warning(
            "%d of %d training pairs are too long, and are left out: the lowest limit is %s=%d",
            found,
            len(pairs),
            lowest[1],
            lowest[0],
        )
    return found


def _limits(options: DictConfig, split: str, side: str) -> dict[str, int]:
    """Option to how many tokens of a side it allows."""
    names = (_BATCH[split], f"fairseq.task.max_{side}_positions", f"fairseq.model.max_{side}_positions")
    found = {name: OmegaConf.select(options, name) for name in names}
    return {name: limit for name, limit in found.items() if limit is not None}


def _lengths(prepared: Prepared, split: str, language: str) -> list[int]:
    """Tokens of each line of a split's side, its end counted."""
    return [len(line.split()) + 1 for line in read_lines(prepared.folder / "bpe" / file_name(split, language))]


def _longest(
    evaluation: DictConfig, prepared: Prepared, folder: Path, splits: Sequence[str]
) -> Iterator[tuple[str, str, int]]:
    """Of each split and side the tokens of the longest sentence, its end counted."""
    for split in splits:
        for side, language in (("source", prepared.source_lang), ("target", prepared.target_lang)):
            yield split, side, max(_lengths(prepared, split, language))
    if evaluation.get("second_test"):
        source = prepared.source_lang
        encoder = Encoder.of(prepared, source, load_dictionary(prepared.bin / dictionary_name(source)))
        lines = read_lines(second_test_file(folder, source))
        yield "second test set", "source", max(len(encoder.sentence(line)) for line in lines)
