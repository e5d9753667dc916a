"""The texts that a model reads while it is looked at, the same for every model: of the test set, evenly spread; for
the weight maps a sentence of our own."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gpam_suite.common.tasks import LM
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.inside.sentences import sentence

SPLIT = "test"
_LONGEST = 256  # tokens of a block: a residual costs the square of it
_MAP_TOKENS = 14  # so many words can be read beside a weight map


@dataclasses.dataclass(frozen=True)
class Text:
    """One text, ready for the model: the arguments of its forward pass, and the tokens ``[1, target]`` it is to
    predict. ``words`` gives the tokens read by the encoder and the decoder, as text."""

    arguments: dict[str, Tensor]
    target: Tensor
    words: dict[str, list[str]]

    def loss(self, model: nn.Module) -> Tensor:
        """Negative log-likelihood in nats a token."""
        logs = model.get_normalized_probs(model(**self.arguments), log_probs=True, sample={"target": self.target})
        return -logs.gather(-1, self.target.unsqueeze(-1)).mean()


def texts(task: Any, prepared: Any, count: int) -> list[Text]:
    """``count`` texts: blocks of ``tokens_per_sample`` tokens (at most 256) of a language model's test set, or pairs
    whose source sentence is of the longer half but no outlier (60th to 95th percentile)."""
    if prepared.task == LM.name:
        return list(_blocks(task, prepared, count))
    dataset = task.load_dataset(SPLIT) or task.dataset(SPLIT)
    by_length = sorted(range(len(dataset)), key=lambda index: (len(dataset[index]["source"]), index))
    longer = by_length[int(0.6 * len(by_length)) : int(0.95 * len(by_length)) or None]
    return [_pair(task, dataset, index) for index in spread(longer, count)]


def text_for_maps(task: Any, prepared: Any) -> Text:
    """A short text whose weights a reader can look at: our own sentence, cut at 14 tokens in a language model, where
    there is one in the languages of the data (:mod:`gpam_suite.inside.sentences`); else one of the test set."""
    if prepared.task == LM.name:
        own = sentence(prepared, prepared.manifest["language"])
        if own is None:
            return next(_blocks(task, prepared, 1, _MAP_TOKENS))
        ids = token_ids(prepared, own, prepared.manifest["language"], task.source_dictionary)[: _MAP_TOKENS + 1]
        return _block(task.source_dictionary, ids)
    source, target = (sentence(prepared, language) for language in (prepared.source_lang, prepared.target_lang))
    if source is None or target is None:
        dataset = task.load_dataset(SPLIT) or task.dataset(SPLIT)
        short = [index for index in range(len(dataset)) if len(dataset[index]["source"]) <= _MAP_TOKENS]
        longest = max(short or range(len(dataset)), key=lambda index: (len(dataset[index]["source"]), -index))
        return _pair(task, dataset, longest)
    read = token_ids(prepared, source, prepared.source_lang, task.source_dictionary)[None]
    predicted = token_ids(prepared, target, prepared.target_lang, task.target_dictionary)[None]
    inputs = {
        "src_tokens": read,
        "src_lengths": torch.tensor([read.shape[1]]),
        "prev_output_tokens": predicted.roll(1, dims=1),
    }
    return _translated(task, inputs, predicted)


def token_ids(prepared: Any, text: str, language: str | None, dictionary: Any) -> Tensor:
    """The tokens of ``text`` and its end, made as the data set's own were."""
    return Encoder.of(prepared, language, dictionary).ids(f"{text}\n")


def spread(items: Sequence[int], count: int) -> list[int]:
    """``count`` of ``items``, evenly spread; all of them where there are no more."""
    step = max(1.0, len(items) / count)
    return [items[int(place * step)] for place in range(min(count, len(items)))]


def _blocks(task: Any, prepared: Any, count: int, length: int | None = None) -> Iterator[Text]:
    from fairseq.data import data_utils

    dictionary = task.source_dictionary
    lines = data_utils.load_indexed_dataset(str(prepared.bin / SPLIT), dictionary)
    stream = torch.cat([lines[index].long() for index in range(len(lines))])
    length = min(length or _LONGEST, task.args.tokens_per_sample, len(stream) - 1)
    starts = range(0, len(stream) - length, max(1, (len(stream) - length) // count))
    for start in list(starts)[:count]:
        yield _block(dictionary, stream[start : start + length + 1])


def _block(dictionary: Any, ids: Tensor) -> Text:
    words = [dictionary[token] for token in ids[:-1].tolist()]
    return Text({"src_tokens": ids[None, :-1]}, ids[None, 1:], {"decoder": words})


def _pair(task: Any, dataset: Any, index: int) -> Text:
    sample = dataset.collater([dataset[index]])
    return _translated(task, dict(sample["net_input"]), sample["target"])


def _translated(task: Any, inputs: dict[str, Tensor], target: Tensor) -> Text:
    read = {"encoder": (task.source_dictionary, inputs["src_tokens"])}
    read["decoder"] = (task.target_dictionary, inputs["prev_output_tokens"])
    words = {side: [dictionary[token] for token in tokens[0].tolist()] for side, (dictionary, tokens) in read.items()}
    return Text(inputs, target, words)
