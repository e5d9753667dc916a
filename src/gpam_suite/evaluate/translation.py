"""Translation by beam search, and BLEU, chrF and TER by sacreBLEU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from omegaconf import DictConfig, OmegaConf

from gpam_suite.common.files import write_atomically
from gpam_suite.data import Prepared
from gpam_suite.records.folder import HYPOTHESES, write_scores


@dataclass(frozen=True)
class TranslationScore:
    """Corpus scores of detokenised text. ``sentences`` holds BLEU's sufficient statistics of each sentence."""

    bleu: float
    chrf: float
    ter: float
    signature: str
    hypotheses: list[str]
    sentences: list[dict[str, Any]]


class Metrics:
    """sacreBLEU's ``bleu`` and ``chrf``, and BLEU's sufficient statistics of one line."""

    def __init__(self, lowercase: bool) -> None:
        self.bleu = sacrebleu.BLEU(lowercase=lowercase)
        self.chrf = sacrebleu.CHRF(lowercase=lowercase)
        self._line = sacrebleu.BLEU(lowercase=lowercase, effective_order=True)

    def statistics(self, hypothesis: str, reference: str) -> list[int]:
        """System length, reference length, matches and totals of the n-grams of order 1 to 4."""
        own = self._line.sentence_score(hypothesis, [reference])
        return [own.sys_len, own.ref_len, *own.counts, *own.totals]


def translate(model: Any, task: Any, split: str, *, beam: int, length_penalty: float, max_tokens: int) -> list[str]:
    """Best hypothesis of every sentence of ``split``, in its order, still segmented as the model was trained.

    ``length_penalty`` is fairseq's ``lenpen``: scores are divided by ``length ** length_penalty``.
    """
    dataset = task.load_dataset(split) or task.dataset(split)
    return translate_sentences(model, task, dataset, beam=beam, length_penalty=length_penalty, max_tokens=max_tokens)


@torch.no_grad()
def translate_sentences(
    model: Any, task: Any, dataset: Any, *, beam: int, length_penalty: float, max_tokens: int
) -> list[str]:
    """:func:`translate` of the sources of a fairseq data set, which need not be a split of the task's data."""
    generator = task.build_generator(
        [model], OmegaConf.create({"beam": beam, "lenpen": length_penalty, "max_len_a": 1.2, "max_len_b": 10})
    )
    device = next(model.parameters()).device
    batches = task.get_batch_iterator(dataset, max_tokens=max_tokens, max_positions=model.max_positions())
    hypotheses: dict[int, str] = {}
    for batch in batches.next_epoch_itr(shuffle=False):
        moved = to_device(batch, device)
        for index, candidates in zip(batch["id"].tolist(), task.inference_step(generator, [model], moved), strict=True):
            hypotheses[index] = task.target_dictionary.string(candidates[0]["tokens"].int().cpu())
    return [hypotheses[index] for index in range(len(dataset))]


def to_device(value: Any, device: torch.device) -> Any:
    """A batch, its nested dictionaries included, with every tensor on ``device``."""
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    return value.to(device) if isinstance(value, torch.Tensor) else value


def score_translation(
    model: Any, task: Any, prepared: Any, split: str, *, beam: int, length_penalty: float, max_tokens: int
) -> TranslationScore:
    """BLEU, chrF and TER (Snover et al. 2006, in percent) of ``split`` against the raw, untokenised references.

    Without regard to case where the preprocessing lower-cases the text; the signature says so (``case:lc``). TER is by
    sacreBLEU's defaults, which never regard case.
    """
    segmented = translate(model, task, split, beam=beam, length_penalty=length_penalty, max_tokens=max_tokens)
    hypotheses = [prepared.postprocess(line) for line in segmented]
    references = prepared.reference(split).read_text(encoding="utf-8").split("\n")[:-1]
    metrics = Metrics(prepared.manifest["preprocessing"]["lowercase"])
    score = metrics.bleu.corpus_score(hypotheses, [references])
    sentences = [
        {"sentence": index, "bleu": metrics.statistics(hypothesis, reference)}
        for index, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True))
    ]
    chrf = metrics.chrf.corpus_score(hypotheses, [references]).score
    ter = sacrebleu.TER().corpus_score(hypotheses, [references]).score
    return TranslationScore(score.score, chrf, ter, str(metrics.bleu.get_signature()), hypotheses, sentences)


def evaluate(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    """See :mod:`gpam_suite.evaluate.score`."""
    score = score_translation(
        model,
        task,
        prepared,
        "test",
        beam=evaluation.beam,
        length_penalty=evaluation.length_penalty,
        max_tokens=evaluation.max_tokens,
    )
    write_scores(folder, score.sentences)
    write_atomically(folder / HYPOTHESES, "".join(f"{line}\n" for line in score.hypotheses))
    protocol = {**decoding(evaluation), "sacrebleu": score.signature, "split": "test"}
    return {"test_bleu": score.bleu, "test_chrf": score.chrf, "test_ter": score.ter}, protocol


def decoding(evaluation: DictConfig) -> dict[str, Any]:
    """What of the protocol says how hypotheses were found."""
    return {
        "beam": evaluation.beam,
        "length_penalty": evaluation.length_penalty,
        "checkpoint": evaluation.checkpoint,
        "averaged_checkpoints": 1,
    }
