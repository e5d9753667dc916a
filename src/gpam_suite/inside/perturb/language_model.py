"""A language model on perturbed context: perplexity of the clean text that follows it."""

import math
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import read_lines
from gpam_suite.inside.perturb.adversarial import input_gradient
from gpam_suite.inside.perturb.noise import alphabet
from gpam_suite.inside.texts import SPLIT, spread

_LONGEST = 512  # tokens of a block, where the model reads more
_HALF = 3 / 8  # of a block: noise makes more sub-words of a context, and has room for two thirds more


class Blocks:
    """Blocks of the test set that begin at lines evenly spread over it: contexts (``texts``) and the clean text that
    follows each, ``3 T / 8`` tokens of whole words both, ``T`` being ``tokens_per_sample`` (at most 512). A reader
    (:class:`gpam_suite.inside.perturb.perturb_runs.Reader`)."""

    def __init__(self, model: Any, task: Any, prepared: Any, evaluation: Any, count: int) -> None:
        self.model, self.embedding, self.dictionary = model, model.decoder.embed_tokens, task.source_dictionary
        self.encoder = Encoder.of(prepared, None, self.dictionary)
        self.length = min(task.args.tokens_per_sample, _LONGEST)
        self._at_once = max(1, evaluation.max_tokens // self.length)
        text = _text(prepared)
        self.letters = alphabet(text.split("\n"))
        starts = [match.start() for match in re.finditer(r"(?m)^.*\S", text)]
        halves = [self._halves(text, start) for start in spread(starts, count)]
        self.texts = [context for context, clean in halves if clean]
        cleans = [clean for _, clean in halves if clean]
        self.clean, self.words = list(map(self.encoder.ids, cleans)), sum(map(self.encoder.words, cleans))

    def _halves(self, text: str, start: int) -> tuple[str, str]:
        """Context and what follows it, from ``start`` on; the latter is empty at the end of the text."""
        most, ends, place, tokens = self.length * _HALF, [], start, 0
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
            nll = sum(float(self.loss(batch).double()) for batch in self._batches(contexts))
        return {"perplexity": math.exp(nll / self.words)}

    def gradients(self, contexts: list[Tensor]) -> list[Tensor]:
        """Gradient of the clean text's negative log-likelihood with respect to its context's embeddings, ``[context
        tokens, width]`` each."""
        found: list[Tensor] = []
        for batch in self._batches(contexts):
            gradient = input_gradient(self.embedding, lambda batch=batch: self.loss(batch)).cpu()
            found += [own[1 : 1 + len(context)] for own, (context, _) in zip(gradient, batch, strict=True)]
        return found

    def _batches(self, contexts: list[Tensor]) -> Iterator[list[tuple[Tensor, Tensor]]]:
        pairs = list(zip(contexts, self.clean, strict=True))
        for first in range(0, len(pairs), self._at_once):
            yield pairs[first : first + self._at_once]

    def loss(self, batch: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Negative log-likelihood of the clean text of (context, clean text) pairs, summed, in nats.

        A block is read from the end of the line before it, padded at its end, where no earlier token looks."""
        device, before = next(self.model.parameters()).device, self.encoder.ids("\n")
        blocks = [torch.cat([before, context, clean]) for context, clean in batch]
        read = torch.nn.utils.rnn.pad_sequence(
            [block[:-1] for block in blocks], batch_first=True, padding_value=self.dictionary.pad()
        )
        features, _ = self.model.decoder.extract_features(read.to(device), None)
        spans = [slice(len(context), len(context) + len(clean)) for context, clean in batch]
        scored = torch.cat([own[span] for own, span in zip(features, spans, strict=True)]).unsqueeze(0)
        target = torch.cat([clean for _, clean in batch]).to(device).unsqueeze(0)
        logits = self.model.decoder.output_layer(scored)
        logs = self.model.get_normalized_probs((logits, None), log_probs=True, sample={"target": target})
        return -logs.gather(-1, target.unsqueeze(-1)).sum()


def _text(prepared: Any) -> str:
    path = prepared.source_text(SPLIT)
    if prepared.unit == "character":
        return path.read_bytes().decode("utf-8", "surrogateescape")
    return "".join(f"{line}\n" for line in read_lines(path))
