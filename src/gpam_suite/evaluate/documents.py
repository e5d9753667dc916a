"""Translation of documents in pieces (:mod:`gpam_suite.data.kinds.documents`), scored by document and by sentence."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gpam_suite.data import Prepared
from gpam_suite.data.kinds.documents import SEPARATOR, split_piece
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.translation import Metrics, decoding, keep, search, translate


@dataclass(frozen=True)
class DocumentScore:
    """Scores in percent. ``documents`` holds BLEU's sufficient statistics of each document."""

    bleu: float
    sentence_bleu: float
    chrf: float
    signature: str
    pieces: int
    misaligned: int
    hypotheses: list[str]
    documents: list[dict[str, Any]]


def score_documents(
    model: Any, task: Any, prepared: Any, split: str, *, beam: int, length_penalty: float, max_tokens: int
) -> DocumentScore:
    """Translate the pieces of ``split`` and score them against the raw references (:func:`score_pieces`)."""
    segmented = translate(model, task, split, beam=beam, length_penalty=length_penalty, max_tokens=max_tokens)
    return score_pieces(
        [prepared.postprocess(line) for line in segmented],
        read_lines(prepared.reference(split)),
        prepared.documents(split),
        lowercase=prepared.manifest["preprocessing"]["lowercase"],
    )


def score_pieces(
    hypotheses: list[str], references: list[str], starts: list[int], *, lowercase: bool = False
) -> DocumentScore:
    """BLEU by document and by sentence, and chrF by document, of translated pieces.

    By document (d-BLEU, Liu et al., arXiv 2001.08210): a line is a whole document, its sentences joined by spaces, no
    separators in it, so that it does not matter where a hypothesis has them. By sentence (s-BLEU): the pieces are split
    at the separators, part k counting as sentence k (:func:`gpam_suite.data.kinds.documents.split_piece` says what a
    missing
    or surplus part does); ``misaligned`` counts the pieces with a wrong number of parts.

    Args:
        hypotheses: plain text of the pieces, with separators.
        references: the same of the references.
        starts: first piece (from 0) of each document.
    """
    wanted = [piece.split(SEPARATOR) for piece in references]
    parts = [split_piece(line, len(sentences)) for line, sentences in zip(hypotheses, wanted, strict=True)]
    metrics = Metrics(lowercase)
    by_sentence = metrics.bleu.corpus_score(
        [sentence for sentences, _ in parts for sentence in sentences],
        [[" ".join(sentence.split()) for sentences in wanted for sentence in sentences]],
    )
    bounds = list(pairwise([*starts, len(references)]))
    ours = [_document(hypotheses[first:end]) for first, end in bounds]
    theirs = [_document(references[first:end]) for first, end in bounds]
    return DocumentScore(
        metrics.bleu.corpus_score(ours, [theirs]).score,
        by_sentence.score,
        metrics.chrf.corpus_score(ours, [theirs]).score,
        str(metrics.bleu.get_signature()),
        len(parts),
        sum(not right for _, right in parts),
        [sentence for sentences, _ in parts for sentence in sentences],
        [
            {"document": index, "bleu": metrics.statistics(*texts)}
            for index, texts in enumerate(zip(ours, theirs, strict=True))
        ],
    )


def _document(pieces: list[str]) -> str:
    return " ".join(" ".join(piece.replace(SEPARATOR, " ") for piece in pieces).split())


def evaluate(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    """See :mod:`gpam_suite.evaluate.score`."""
    score = score_documents(model, task, prepared, "test", **search(evaluation))
    keep(folder, score.documents, score.hypotheses)
    metrics = {
        "test_bleu": score.bleu,
        "test_sentence_bleu": score.sentence_bleu,
        "test_chrf": score.chrf,
        "test_pieces": score.pieces,
        "test_misaligned_pieces": score.misaligned,
    }
    budget = prepared.manifest["dataset"]["budget"]
    protocol = {"unit": "document", "budget": budget, **decoding(evaluation)}
    return metrics, {**protocol, "sacrebleu": score.signature, "split": "test"}
