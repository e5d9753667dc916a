"""The texts that a model reads while it is looked at, the same for every model: of the test set, evenly spread."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from gpam_suite.common.tasks import LM
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.language_model import token_stream
from gpam_suite.evaluate.references import LOWER_CASED, TOKENISED, kind_of
from gpam_suite.evaluate.translation import sentences_of

SPLIT = "test"
_LONGEST = 256  # tokens of a block: a residual costs the square of it


@dataclasses.dataclass(frozen=True)
class Text:
    """One text, ready for the model: the arguments of its forward pass, and the tokens ``[1, target]`` it is to
    predict. ``words`` gives, as text, the tokens of a pair that the encoder reads and those to predict."""

    arguments: dict[str, Tensor]
    target: Tensor
    words: dict[str, list[str]] = dataclasses.field(default_factory=dict)


def texts(task: Any, prepared: Any, count: int) -> list[Text]:
    """``count`` texts: blocks of ``tokens_per_sample`` tokens (at most 256) of a language model's test set, or pairs
    whose source sentence is of the longer half but no outlier (60th to 95th percentile)."""
    if prepared.task == LM.name:
        return list(_blocks(task, prepared, count))
    dataset = task.load_dataset(SPLIT) or task.dataset(SPLIT)
    by_length = sorted(range(len(dataset)), key=lambda index: (len(dataset[index]["source"]), index))
    first = int(0.6 * len(by_length))
    longer = by_length[first : max(first + 1, int(0.95 * len(by_length)))]
    return [_pair(task, dataset, index) for index in evenly(longer, count)]


def pairs_of(task: Any, count: int) -> list[Text]:
    """``count`` sentence pairs, evenly spread over the test set, of any length."""
    dataset = task.load_dataset(SPLIT) or task.dataset(SPLIT)
    return [_pair(task, dataset, index) for index in evenly(range(len(dataset)), count)]


def pairs_given(task: Any, prepared: Any, sentences: Mapping[str, Any]) -> list[Text]:
    """The pairs of ``sentences`` in the languages of a translation: a list by ``de-en``, read backwards for en-de. They
    are made tokenised or lower-cased where the data set came so, as its own preparation then does not do it."""
    one, other = prepared.source_lang, prepared.target_lang
    pairs = sentences.get(f"{one}-{other}") or [pair[::-1] for pair in sentences.get(f"{other}-{one}", ())]
    if not pairs:
        return []
    kind = kind_of(read_lines(prepared.reference(SPLIT)))
    if TOKENISED in kind:
        pairs = [[re.sub(r"([.,?!])", r" \1", line) for line in pair] for pair in pairs]
    if LOWER_CASED in kind:
        pairs = [[line.lower() for line in pair] for pair in pairs]
    encoders = Encoder.of(prepared, one, task.source_dictionary), Encoder.of(prepared, other, task.target_dictionary)
    sources, targets = (
        [encoder.sentence(line) for line in lines]
        for encoder, lines in zip(encoders, zip(*pairs, strict=True), strict=True)
    )
    dataset = sentences_of(sources, task, targets)
    return [_pair(task, dataset, index) for index in range(len(pairs))]


def evenly(items: Sequence[int], count: int) -> list[int]:
    """``count`` of ``items``, evenly spread; all of them where there are no more."""
    step = max(1.0, len(items) / count)
    return [items[int(place * step)] for place in range(min(count, len(items)))]


def _blocks(task: Any, prepared: Any, count: int) -> Iterator[Text]:
    stream, _ = token_stream(prepared, SPLIT, task.source_dictionary)
    length = min(_LONGEST, task.args.tokens_per_sample, len(stream) - 1)
    starts = range(0, len(stream) - length, max(1, (len(stream) - length) // count))
    for start in starts[:count]:
        ids = stream[start : start + length + 1]
        yield Text({"src_tokens": ids[None, :-1]}, ids[None, 1:])


def _pair(task: Any, dataset: Any, index: int) -> Text:
    sample = dataset.collater([dataset[index]])
    inputs = dict(sample["net_input"])
    read = {
        "encoder": (task.source_dictionary, inputs["src_tokens"]),
        "predicted": (task.target_dictionary, sample["target"]),
    }
    words = {side: [dictionary[token] for token in tokens[0].tolist()] for side, (dictionary, tokens) in read.items()}
    return Text(inputs, sample["target"], words)
