"""A translation model on perturbed source sentences: BLEU and chrF against the clean references."""

from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import torch
from fairseq.data import LanguagePairDataset
from torch import Tensor

from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.translation import Metrics, References, to_device, translate_sentences
from gpam_suite.inside.perturb.adversarial import input_gradient
from gpam_suite.inside.perturb.noise import alphabet
from gpam_suite.inside.texts import SPLIT, spread

_BATCH = 8  # sentences whose gradient is taken at once


class Sentences:
    """Sentences of the test set, evenly spread: raw sources (``texts``) and references, and the model's way to read and
    translate them, by the ``evaluation`` node of its run. A reader
    (:class:`gpam_suite.inside.perturb.perturb_runs.Reader`).
    """

    def __init__(self, model: Any, task: Any, prepared: Any, evaluation: Any, count: int) -> None:
        self.model, self.task, self.prepared, self.evaluation = model, task, prepared, evaluation
        sources, references = read_lines(prepared.source_text(SPLIT)), read_lines(prepared.reference(SPLIT))
        chosen = spread(range(len(sources)), count)
        self.texts, self.references = [sources[i] for i in chosen], [references[i] for i in chosen]
        self.embedding, self.dictionary = model.encoder.embed_tokens, task.source_dictionary
        self.letters = alphabet(sources)
        self._source = Encoder.of(prepared, prepared.source_lang, self.dictionary)
        self._target = Encoder.of(prepared, prepared.target_lang, task.target_dictionary)
        self._metrics = Metrics(prepared.manifest["preprocessing"]["lowercase"], References.of(references).tokenised)

    def read(self, lines: list[str]) -> list[Tensor]:
        """Sub-word ids of source sentences, tokenised and segmented as the training text was."""
        longest = min(self.model.max_positions()[0], self.evaluation.max_tokens)
        return [_at_most(longest, self._source.ids(f"{line}\n")) for line in lines]

    def score(self, sources: list[Tensor]) -> dict[str, float]:
        """BLEU and chrF of the translations of ``sources``, by the run's own protocol."""
        protocol = {name: self.evaluation[name] for name in ("beam", "length_penalty", "max_tokens")}
        segmented = translate_sentences(self.model, self.task, self._pairs(sources), **protocol)
        hypotheses = [self.prepared.postprocess(line) for line in segmented]
        metrics = {"bleu": self._metrics.bleu, "chrf": self._metrics.chrf}
        return {name: metric.corpus_score(hypotheses, [self.references]).score for name, metric in metrics.items()}

    def gradients(self, sources: list[Tensor]) -> list[Tensor]:
        """Gradient of each reference's negative log-likelihood with respect to its source's embeddings, ``[source
        tokens, width]`` each."""
        longest = self.model.max_positions()[1]
        targets = [_at_most(longest, self._target.ids(f"{line}\n")) for line in self.references]
        pairs, pad = self._pairs(sources, targets), self.dictionary.pad()
        found: dict[int, Tensor] = {}
        for first in range(0, len(sources), _BATCH):
            batch = pairs.collater([pairs[index] for index in range(first, min(first + _BATCH, len(sources)))])
            batch = to_device(batch, next(self.model.parameters()).device)
            gradient = input_gradient(self.embedding, lambda batch=batch: self.loss(batch)).cpu()
            for index, tokens, own in zip(
                batch["id"].tolist(), batch["net_input"]["src_tokens"].cpu(), gradient, strict=True
            ):
                found[index] = own[tokens != pad]
        return [found[index] for index in range(len(sources))]

    def loss(self, batch: dict[str, Any]) -> Tensor:
        """Negative log-likelihood of the targets of a batch of fairseq's, summed, in nats."""
        target = batch["target"]
        logs = self.model.get_normalized_probs(self.model(**batch["net_input"]), log_probs=True, sample=batch)
        nll = -logs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return nll.masked_fill(target == self.task.target_dictionary.pad(), 0.0).sum()

    def _pairs(self, sources: list[Tensor], targets: list[Tensor] | None = None) -> LanguagePairDataset:
        of_targets = [targets, [len(line) for line in targets]] if targets else [None, None]
        return LanguagePairDataset(
            sources,
            torch.tensor([len(line) for line in sources]).numpy(),
            self.dictionary,
            *of_targets,
            tgt_dict=self.task.target_dictionary,
            left_pad_source=self.task.cfg.left_pad_source,
            shuffle=False,
        )


def _at_most(longest: int, ids: Tensor) -> Tensor:
    """``ids`` with what is longer than the model reads cut off before the end symbol."""
    return ids if len(ids) <= longest else torch.cat([ids[: longest - 1], ids[-1:]])
