"""Translation of documents in pieces (:mod:`gpam_suite.data.kinds.documents`), scored by document and by sentence."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gpam_suite.data import Prepared
from gpam_suite.data.kinds.documents import SEPARATOR, split_piece
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.translation import Metrics, decoding_protocol, keep, translated


def score_pieces(
    hypotheses: list[str], references: list[str], starts: list[int], *, lowercase: bool
) -> tuple[dict[str, float], dict[str, str], list[str], list[dict[str, Any]]]:
    """BLEU by document and by sentence, and chrF by document, of translated pieces.

    By document (d-BLEU, Liu et al., arXiv 2001.08210): a line is a whole document, its sentences joined by spaces, no
    separators in it, so that it does not matter where a hypothesis has them. By sentence (s-BLEU): the pieces are split
    at the separators, part k counting as sentence k (:func:`gpam_suite.data.kinds.documents.split_piece` says what a
    missing or surplus part does); misaligned are the pieces with a wrong number of parts.

    Args:
        hypotheses: plain text of the pieces, with separators.
        references: the same of the references.
        starts: first piece (from 0) of each document.

    Returns:
        Metrics in percent, their protocol, the sentences, and BLEU's sufficient statistics of each document.
    """
    wanted = [piece.split(SEPARATOR) for piece in references]
    parts = [split_piece(line, len(sentences)) for line, sentences in zip(hypotheses, wanted, strict=True)]
    said = [sentence for sentences, _ in parts for sentence in sentences]
    meant = [" ".join(sentence.split()) for sentences in wanted for sentence in sentences]
    measured = Metrics(meant, lowercase)
    bounds = list(pairwise([*starts, len(references)]))
    ours = [_document(hypotheses[first:end]) for first, end in bounds]
    theirs = [_document(references[first:end]) for first, end in bounds]
    by_document = measured.scores(ours, theirs, ("bleu", "chrf"))
    metrics = {
        "test_bleu": by_document["bleu"],
        "test_sentence_bleu": measured.scores(said, meant, ("bleu",))["bleu"],
        "test_chrf": by_document["chrf"],
        "test_misaligned_pieces": sum(not right for _, right in parts),
    }
    pairs = enumerate(zip(ours, theirs, strict=True))
    documents = [{"document": index, "bleu": measured.statistics(*pair)} for index, pair in pairs]
    return metrics, measured.protocol(), said, documents


def _document(pieces: list[str]) -> str:
    return " ".join(" ".join(piece.replace(SEPARATOR, " ") for piece in pieces).split())


def evaluate(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    """See :mod:`gpam_suite.evaluate.score`."""
    metrics, protocol, sentences, rows = score_pieces(
        translated(model, task, prepared, evaluation),
        read_lines(prepared.reference("test")),
        prepared.documents("test"),
        lowercase=prepared.manifest["preprocessing"]["lowercase"],
    )
    keep(folder, rows, sentences)
    return metrics, {
        "unit": "document",
        "budget": prepared.manifest["dataset"]["budget"],
        **decoding_protocol(evaluation),
        **protocol,
        "split": "test",
    }
