"""Models on perturbed text: a language model scores the clean text behind a perturbed context, a translation model
translates perturbed source sentences.

Both readers have the raw ``texts`` that are perturbed, their ``letters``, and the ``embedding`` and ``dictionary`` that
these are read with; ``read`` makes tokens of texts, ``score`` and ``gradients`` are of tokens in their place.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import torch
from torch import Tensor

from gpam.errors import UsageError
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.language_model import nll
from gpam_suite.evaluate.translation import Metrics, sentences_of, translated
from gpam_suite.inside.perturb.adversarial import input_gradient
from gpam_suite.inside.perturb.noise import alphabet
from gpam_suite.inside.texts import SPLIT, evenly

_LONGEST = 512  # tokens of a block, where the model reads more
_SHARE = 3 / 8  # of a block: noise makes more sub-words of a context, and has room for two thirds more
_AT_ONCE = 8  # sentences whose gradient is taken together


class Blocks:
    """Blocks of the test set that begin at lines evenly spread over it: contexts (``texts``) and the clean text that
    follows each, ``3 T / 8`` tokens of whole words both, ``T`` being ``tokens_per_sample`` (at most 512)."""

    def __init__(self, model: Any, task: Any, prepared: Any, evaluation: Any, count: int) -> None:
        self.model, self.embedding, self.dictionary = model, model.decoder.embed_tokens, task.source_dictionary
        self.encoder = Encoder.of(prepared, None, self.dictionary)
        self.length = min(task.args.tokens_per_sample, _LONGEST)
        self._at_once = max(1, evaluation.max_tokens // self.length)
        text = _text(prepared)
        self.letters = alphabet(text.split("\n"))
        starts = [match.start() for match in re.finditer(r"(?m)^.*\S", text)]
        halves = [self._halves(text, start) for start in evenly(starts, count)]
        self.texts = [context for context, clean in halves if clean]
        if not self.texts:
            raise UsageError(
                f"the test set is too short to be read in blocks: wanted more than {int(self.length * _SHARE)} tokens, "
                "a context, and text behind it"
            )
        cleans = [clean for _, clean in halves if clean]
        self.clean, self.words = list(map(self.encoder.ids, cleans)), sum(map(self.encoder.words, cleans))

    def _halves(self, text: str, start: int) -> tuple[str, str]:
        """Context and what follows it, from ``start`` on; the latter is empty at the end of the text."""
        most, ends, place, tokens = self.length * _SHARE, [], start, 0
        for unit in re.compile(r"\n|[^\S\n]+|\S+").finditer(text, start):
            tokens += len(self.encoder.ids(unit[0]))
            if tokens > most and not unit[0].isspace() and place > start:
                ends.append(place)
                tokens = len(self.encoder.ids(unit[0]))
                if len(ends) == 2:
                    break
            place = unit.end()
        first, second = [*ends, place, place][:2]
        return text[start:first], text[first:second]

    def read(self, contexts: list[str]) -> list[Tensor]:
        """Tokens of contexts; what the block has no room for is cut off at the beginning."""
        found = []
        for context, clean in zip(contexts, self.clean, strict=True):
            ids = self.encoder.ids(context)
            found.append(ids[max(0, len(ids) - (self.length - len(clean))) :])
        return found

    def score(self, contexts: list[Tensor]) -> dict[str, float]:
        """Perplexity of the clean text behind ``contexts``, per word (or character) with its line ends."""
        with torch.no_grad():
            total = sum(float(self.loss(batch)) for batch in self._batches(contexts))
        return {"perplexity": math.exp(total / self.words)}

    def gradients(self, contexts: list[Tensor]) -> list[Tensor]:
        """Gradient of the clean text's negative log-likelihood with respect to its context's embeddings, ``[context
        tokens, width]`` each."""
        found: list[Tensor] = []
        for batch in self._batches(contexts):
            gradient = input_gradient(self.embedding, lambda batch=batch: self.loss(batch))
            found += [own[1 : 1 + len(context)] for own, (context, _) in zip(gradient, batch, strict=True)]
        return found

    def _batches(self, contexts: list[Tensor]) -> Iterator[list[tuple[Tensor, Tensor]]]:
        pairs = list(zip(contexts, self.clean, strict=True))
        for first in range(0, len(pairs), self._at_once):
            yield pairs[first : first + self._at_once]

    def loss(self, batch: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Negative log-likelihood of the clean text of (context, clean text) pairs, summed, in nats.

        A block is read from the end of the line before it, padded at its end, where no earlier token looks."""
        before = self.encoder.ids("\n")
        blocks = [torch.cat([before, context, clean])[:-1] for context, clean in batch]
        read = torch.nn.utils.rnn.pad_sequence(blocks, batch_first=True, padding_value=self.dictionary.pad())
        features, _ = self.model.decoder.extract_features(read, None)
        spans = [slice(len(context), len(context) + len(clean)) for context, clean in batch]
        scored = torch.cat([own[span] for own, span in zip(features, spans, strict=True)]).unsqueeze(0)
        target = torch.cat([clean for _, clean in batch]).unsqueeze(0)
        return nll(self.model, (self.model.decoder.output_layer(scored), None), target).sum()


def _text(prepared: Any) -> str:
    path = prepared.source_text(SPLIT)
    if prepared.unit == "character":
        return path.read_bytes().decode("utf-8", "surrogateescape")
    return "".join(f"{line}\n" for line in read_lines(path))


class Sentences:
    """Sentences of the test set, evenly spread: raw sources (``texts``), references, and the model's way to read and
    translate them, by the ``evaluation`` node of its run."""

    def __init__(self, model: Any, task: Any, prepared: Any, evaluation: Any, count: int) -> None:
        self.model, self.task, self.prepared, self.evaluation = model, task, prepared, evaluation
        sources, references = read_lines(prepared.source_text(SPLIT)), read_lines(prepared.reference(SPLIT))
        chosen = evenly(range(len(sources)), count)
        self.texts, self.references = [sources[i] for i in chosen], [references[i] for i in chosen]
        self.embedding, self.dictionary = model.encoder.embed_tokens, task.source_dictionary
        self.letters = alphabet(sources)
        self._source = Encoder.of(prepared, prepared.source_lang, self.dictionary)
        self._target = Encoder.of(prepared, prepared.target_lang, task.target_dictionary)
        self._metrics = Metrics(references, prepared.manifest["preprocessing"]["lowercase"])

    def read(self, lines: list[str]) -> list[Tensor]:
        """Sub-word ids of source sentences, tokenised and segmented as the training text was."""
        longest = min(self.model.max_positions()[0], self.evaluation.max_tokens)
        return [_at_most(longest, self._source.sentence(line)) for line in lines]

    def score(self, sources: list[Tensor]) -> dict[str, float]:
        """BLEU and chrF of the translations of ``sources``, by the run's own protocol."""
        sentences = sentences_of(sources, self.task)
        hypotheses = translated(self.model, self.task, self.prepared, self.evaluation, sentences)
        return self._metrics.scores(hypotheses, self.references, ("bleu", "chrf"))

    def gradients(self, sources: list[Tensor]) -> list[Tensor]:
        """Gradient of each reference's negative log-likelihood with respect to its source's embeddings, ``[source
        tokens, width]`` each."""
        longest = self.model.max_positions()[1]
        targets = [_at_most(longest, self._target.sentence(line)) for line in self.references]
        pairs, found = sentences_of(sources, self.task, targets), {}
        for first in range(0, len(sources), _AT_ONCE):
            batch = pairs.collater([pairs[index] for index in range(len(sources))[first : first + _AT_ONCE]])
            gradient = input_gradient(self.embedding, lambda batch=batch: self.loss(batch))
            real = batch["net_input"]["src_tokens"] != self.dictionary.pad()
            found |= {index: own[mask] for index, own, mask in zip(batch["id"].tolist(), gradient, real, strict=True)}
        return [found[index] for index in range(len(sources))]

    def loss(self, batch: dict[str, Any]) -> Tensor:
        """Negative log-likelihood of the targets of a batch of fairseq's, summed, in nats."""
        losses = nll(self.model, self.model(**batch["net_input"]), batch["target"])
        return losses.masked_fill(batch["target"] == self.task.target_dictionary.pad(), 0.0).sum()


def _at_most(longest: int, ids: Tensor) -> Tensor:
    """``ids`` with what is longer than the model reads cut off before the end symbol."""
    return ids if len(ids) <= longest else torch.cat([ids[: longest - 1], ids[-1:]])
