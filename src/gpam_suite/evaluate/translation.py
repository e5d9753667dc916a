"""Translation by beam search, and BLEU, chrF and TER by sacreBLEU."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import numpy as np
import sacrebleu
import torch
from fairseq import utils
from fairseq.data import LanguagePairDataset
from omegaconf import DictConfig, OmegaConf

from gpam_suite.common.files import write_atomically
from gpam_suite.data import Prepared
from gpam_suite.data.second_test import second_test_file
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.references import TOKENISED, kind_of, tokeniser_of
from gpam_suite.records.folder import HYPOTHESES
from gpam_suite.records.lines import write_scores


class Metrics:
    """sacreBLEU's BLEU, chrF and TER of texts such as ``references``, and BLEU's sufficient statistics of one line.

    Tokenised text (:func:`kind_of`) is scored as it is (``tok:none``), raw text by the tokeniser for its script
    (:func:`tokeniser_of`). ``lowercase``: BLEU and chrF without regard to case, as TER is always.
    """

    def __init__(self, references: Sequence[str], lowercase: bool) -> None:
        self.kind = kind_of(references)
        tokenised = TOKENISED in self.kind
        given = {"lowercase": lowercase, "force": tokenised}
        given |= {"tokenize": "none" if tokenised else tokeniser_of(references)}
        self._bleu = sacrebleu.BLEU(**given)
        self._measures = {"bleu": self._bleu, "chrf": sacrebleu.CHRF(lowercase=lowercase), "ter": sacrebleu.TER()}
        self._line = sacrebleu.BLEU(**given, effective_order=True)

    def scores(
        self, hypotheses: Sequence[str], references: Sequence[str], names: Sequence[str] = ("bleu", "chrf", "ter")
    ) -> dict[str, float]:
        """Scores of a corpus, by their ``names``."""
        return {name: self._measures[name].corpus_score(hypotheses, [references]).score for name in names}

    def protocol(self) -> dict[str, str]:
        """sacreBLEU's signature, and what the references are where they are no raw, cased text: then BLEU is comparable
        only with that of the same tokens."""
        said = {"sacrebleu": str(self._bleu.get_signature())}  # known behind the first score
        return said | ({"references": ", ".join(self.kind)} if self.kind else {})

    def statistics(self, hypothesis: str, reference: str) -> list[int]:
        """System length, reference length, matches and totals of the n-grams of order 1 to 4."""
        own = self._line.sentence_score(hypothesis, [reference])
        return [own.sys_len, own.ref_len, *own.counts, *own.totals]


@torch.no_grad()
def translate_sentences(model: Any, task: Any, dataset: Any, evaluation: Any) -> list[str]:
    """Best hypothesis of every source of a fairseq data set, in its order, still segmented as the model was trained.

    By the ``beam``, ``length_penalty`` and ``max_tokens`` of the ``evaluation`` node. The penalty is fairseq's
    ``lenpen``: scores are divided by ``length ** length_penalty``.
    """
    search = {"beam": evaluation["beam"], "lenpen": evaluation["length_penalty"], "max_len_a": 1.2, "max_len_b": 10}
    generator = task.build_generator([model], OmegaConf.create(search))
    device = next(model.parameters()).device
    most = {"max_tokens": evaluation["max_tokens"], "max_positions": model.max_positions()}
    batches = task.get_batch_iterator(dataset, **most)
    hypotheses: dict[int, str] = {}
    for batch in batches.next_epoch_itr(shuffle=False):
        moved = utils.apply_to_sample(lambda tensor: tensor.to(device), batch)
        for index, candidates in zip(batch["id"].tolist(), task.inference_step(generator, [model], moved), strict=True):
            hypotheses[index] = task.target_dictionary.string(candidates[0]["tokens"].int().cpu())
    return [hypotheses[index] for index in range(len(dataset))]


def sentences_of(
    sources: Sequence[torch.Tensor], task: Any, targets: Sequence[torch.Tensor] | None = None
) -> LanguagePairDataset:
    """A fairseq data set of sources, or of pairs, each side the ids of a sentence with its end."""
    return LanguagePairDataset(
        sources,
        np.array([len(line) for line in sources]),
        task.source_dictionary,
        targets,
        targets and np.array([len(line) for line in targets]),
        task.target_dictionary,
        left_pad_source=task.cfg.left_pad_source,
        shuffle=False,
    )


def translated(model: Any, task: Any, prepared: Prepared, evaluation: Any, sentences: Any = None) -> list[str]:
    """Plain text: the translations of the test set, or of other ``sentences``, by the protocol of ``evaluation``."""
    if sentences is None:
        sentences = task.load_dataset("test") or task.dataset("test")
    return [prepared.postprocess(line) for line in translate_sentences(model, task, sentences, evaluation)]


def evaluate(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    """BLEU, chrF and TER (Snover et al. 2006, in percent) of the test set against the data set's own references; see
    :mod:`gpam_suite.evaluate.score`.

    They are raw, untokenised text, and BLEU is comparable with that of others; where the data set itself came tokenised
    it is scored as it is, and the protocol says so, as what fairseq's own scripts print of such text.
    Without regard to case where the preprocessing lower-cases the text; the signature says so (``case:lc``).
    """
    hypotheses = translated(model, task, prepared, evaluation)
    references = read_lines(prepared.reference("test"))
    metrics = Metrics(references, prepared.manifest["preprocessing"]["lowercase"])
    scores = metrics.scores(hypotheses, references)
    pairs = enumerate(zip(hypotheses, references, strict=True))
    keep(folder, [{"sentence": index, "bleu": metrics.statistics(*pair)} for index, pair in pairs], hypotheses)
    protocol = {**decoding_protocol(evaluation), **metrics.protocol(), "split": "test"}
    return {f"test_{name}": score for name, score in scores.items()}, protocol


def score_second_test(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], list[str]]:
    """BLEU, chrF and TER of the second test set that is kept in ``folder``, scored as the first one (:func:`evaluate`),
    and what is to be known of its references, if they are no raw text.

    Its source is cut as the first one's was (the run's own tokeniser, sub-words and dictionary). Its translations are
    kept beside it; it has no ``scores.jsonl``, as what is tested over sentences is the first set.
    """
    sources, references = (
        read_lines(second_test_file(folder, language)) for language in (prepared.source_lang, prepared.target_lang)
    )
    encoder = Encoder.of(prepared, prepared.source_lang, task.source_dictionary)
    sentences = sentences_of([encoder.sentence(line) for line in sources], task)
    hypotheses = translated(model, task, prepared, evaluation, sentences)
    _keep_lines(folder / f"second_test_{HYPOTHESES}", hypotheses)
    metrics = Metrics(references, prepared.manifest["preprocessing"]["lowercase"])
    scores = metrics.scores(hypotheses, references)
    return {f"second_test_{name}": score for name, score in scores.items()}, metrics.kind


def keep(folder: Path, units: list[dict[str, Any]], hypotheses: list[str]) -> None:
    """Leave the scores of a test set's units and its hypotheses in a run's folder."""
    write_scores(folder, units)
    _keep_lines(folder / HYPOTHESES, hypotheses)


def _keep_lines(path: Path, lines: list[str]) -> None:
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def decoding_protocol(evaluation: DictConfig) -> dict[str, Any]:
    """What of the protocol says how hypotheses were found."""
    return {
        "beam": evaluation.beam,
        "length_penalty": evaluation.length_penalty,
        "checkpoint": evaluation.checkpoint,
        "averaged_checkpoints": 1,
    }
