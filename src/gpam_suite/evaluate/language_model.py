"""Perplexity by word, with a context window."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from gpam_fairseq.trainer.cross_entropy import negative_log_likelihoods
from gpam_fairseq.trainer.fast import output_weight

import torch
from omegaconf import DictConfig
from torch import Tensor

from gpam_suite.data import Prepared
from gpam_suite.records.lines import write_scores

PASSAGE = 1000


@dataclass(frozen=True)
class LanguageModelScore:
    """Negative log-likelihoods in nats. ``units`` has one row a document, or a passage where none are marked: its words
    and its sum."""

    nll: float
    tokens: int
    words: int
    units: list[dict[str, Any]]

    @property
    def perplexity(self) -> float:
        """``exp(NLL / words)``, a line's end counted as a word: comparable across vocabularies and segmentations."""
        return perplexity(self.nll, self.words)

    @property
    def token_perplexity(self) -> float:
        """``exp(NLL / tokens)``: comparable only under the same segmentation."""
        return perplexity(self.nll, self.tokens)


def perplexity(nll: float, count: int) -> float:
    """``exp(nll / count)``, nll in nats; infinite beyond float64's range, where a training has blown up."""
    try:
        return math.exp(nll / count)
    except OverflowError:
        return math.inf


@torch.no_grad()
def token_nll(
    model: Any, stream: Tensor, *, eos: int, tokens_per_sample: int, context_window: int, max_tokens: int
) -> Tensor:
    """``-ln p(token | context)`` for every token of ``stream``, as fairseq's eval-lm computes it.

    The stream is cut into blocks of ``tokens_per_sample - context_window`` tokens; each block is read together with
    the ``context_window`` tokens before it, so every token has at least that much context where the text has it, and
    is scored once. The first token follows ``eos``. At most ``max_tokens`` tokens are in one batch.

    Without a context window every token is computed once. With one, the protocol forbids it: a block gives its context
    tokens new positions and hides what came before them, so their keys and values are not those of the block that
    scored them, and a cache would be another model. Each token is then computed ``tokens_per_sample /
    (tokens_per_sample - context_window)`` times; output projection and softmax are computed for scored tokens only.

    Returns:
        float32, as long as ``stream``, in nats.
    """
    if not 0 <= context_window < tokens_per_sample:
        raise ValueError(f"context_window: got {context_window}, wanted 0 to {tokens_per_sample - 1}")
    device = next(model.parameters()).device
    inputs = torch.cat([stream.new_tensor([eos]), stream[:-1]])
    scores = torch.empty(len(stream), dtype=torch.float32)
    for blocks in _batches(_blocks(len(stream), tokens_per_sample - context_window, context_window), max_tokens):
        source = torch.stack([inputs[first:end] for first, _, end in blocks]).to(device)
        scored = blocks[0][1] - blocks[0][0]
        features, _ = model.decoder.extract_features(source, None)
        target = torch.stack([stream[start:end] for _, start, end in blocks]).to(device)
        rows = _of_features(model, features[:, scored:], target).float().cpu()
        for (_, start, end), row in zip(blocks, rows, strict=True):
            scores[start:end] = row
    return scores


def nll(model: Any, output: Any, target: Tensor) -> Tensor:
    """Negative log-likelihood in nats of each token of ``target`` ``[batch, tokens]`` under a model's ``output``."""
    logs = model.get_normalized_probs(output, log_probs=True, sample={"target": target})
    return -logs.gather(-1, target.unsqueeze(-1)).squeeze(-1)


def _of_features(model: Any, features: Tensor, target: Tensor) -> Tensor:
    """``-ln p(target)``, ``[blocks, scored tokens]``; by chunks of rows where the output layer is a plain product."""
    weight = output_weight(model.decoder)
    if weight is not None:
        return negative_log_likelihoods(features.flatten(0, 1), weight, target.flatten()).view(target.shape)
    return nll(model, (model.decoder.output_layer(features), None), target)


Block = tuple[int, int, int]


def _blocks(length: int, step: int, context: int) -> Iterator[Block]:
    """``(first token read, first token scored, end)`` of each block."""
    for start in range(0, length, step):
        yield max(0, start - context), start, min(start + step, length)


def _batches(blocks: Iterator[Block], max_tokens: int) -> Iterator[list[Block]]:
    """Neighbouring blocks of one shape, as many as fit into ``max_tokens``."""
    for (before, scored), alike in groupby(blocks, lambda block: (block[1] - block[0], block[2] - block[1])):
        fitting = max(1, max_tokens // (before + scored))
        while batch := list(islice(alike, fitting)):
            yield batch


def token_stream(prepared: Any, split: str, dictionary: Any) -> tuple[Tensor, Tensor]:
    """Token ids of all lines of ``split``, one behind the other, and where each line ends."""
    from fairseq.data import data_utils

    lines = data_utils.load_indexed_dataset(str(prepared.bin / split), dictionary)
    return torch.cat([lines[index].long() for index in range(len(lines))]), torch.tensor(lines.sizes).cumsum(0)


def score_language_model(
    model: Any, task: Any, prepared: Any, split: str, *, context_window: int, max_tokens: int
) -> LanguageModelScore:
    """Perplexity of ``split``, whole and by document; by passage (:func:`passages`) where no documents are marked."""
    dictionary = task.source_dictionary
    stream, line_ends = token_stream(prepared, split, dictionary)
    losses = token_nll(
        model,
        stream,
        eos=dictionary.eos(),
        tokens_per_sample=task.args.tokens_per_sample,
        context_window=context_window,
        max_tokens=max_tokens,
    ).double()
    words = prepared.words_by_line(split)
    units = []
    unit, starts = "document", prepared.documents(split)
    if len(starts) <= 1:
        unit, starts = "passage", passages(words)
    for index, (first, end) in enumerate(zip(starts, [*starts[1:], len(line_ends)], strict=True)):
        begin = int(line_ends[first - 1]) if first else 0
        total = float(losses[begin : int(line_ends[end - 1])].sum())
        units.append({unit: index, "words": sum(words[first:end]), "nll": total})
    return LanguageModelScore(float(losses.sum()), len(stream), prepared.words(split), units)


def passages(words: Sequence[int]) -> list[int]:
    """First lines of a text's passages: whole lines, as few as have :data:`PASSAGE` words, and what is left behind the
    last. A draw of passages keeps what neighbouring words share (a block bootstrap: Künsch 1989).

    Args:
        words: words of each line (of text that is read by character: characters).
    """
    starts, size = [0], 0
    for line, count in enumerate(words):
        if size >= PASSAGE:
            starts.append(line)
            size = 0
        size += count
    return starts


def evaluate(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    """See :mod:`gpam_suite.evaluate.score`."""
    metrics: dict[str, float] = {}
    for split in ("valid", "test"):
        score = score_language_model(
            model, task, prepared, split, context_window=evaluation.context_window, max_tokens=evaluation.max_tokens
        )
        metrics[f"{split}_perplexity"] = score.perplexity
        metrics[f"{split}_token_perplexity"] = score.token_perplexity
        metrics[f"{split}_loss"] = score.nll / score.words
        if prepared.unit == "character":
            metrics[f"{split}_bits_per_character"] = score.nll / score.words / math.log(2)
    write_scores(folder, score.units)
    protocol = {
        "unit": prepared.unit,
        "context_window": evaluation.context_window,
        "tokens_per_sample": task.args.tokens_per_sample,
        "split": "test",
        "checkpoint": evaluation.checkpoint,
    }
    return metrics, protocol
