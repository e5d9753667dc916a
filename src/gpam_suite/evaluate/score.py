"""Evaluate a model by its task's protocol, and leave the scores of the test set in the run's folder."""

import math
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gpam_suite.common.files import write_atomically
from gpam_suite.data import Prepared
from gpam_suite.evaluate.documents import score_documents
from gpam_suite.evaluate.language_model import score_language_model
from gpam_suite.evaluate.recall import score_recall
from gpam_suite.evaluate.translation import score_translation
from gpam_suite.records.folder import HYPOTHESES, write_scores


def evaluate(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    """Metrics of the validation and test sets, and the protocol that they follow.

    ``evaluation`` is the configuration's node. ``scores.jsonl`` (every task) and ``hypotheses.txt`` (translation)
    of the test set are written into ``folder``.
    """
    if prepared.task == "lm":
        return _evaluate_language_model(model, task, prepared, evaluation, folder)
    if prepared.task == "recall":
        return _evaluate_recall(model, task, evaluation, folder)
    if prepared.kind == "documents":
        return _evaluate_documents(model, task, prepared, evaluation, folder)
    return _evaluate_translation(model, task, prepared, evaluation, folder)


def _evaluate_language_model(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    metrics: dict[str, float] = {}
    for split in ("valid", "test"):
        score = score_language_model(
            model,
            task,
            prepared,
            split,
            context_window=evaluation.context_window,
            max_tokens=evaluation.max_tokens,
        )
        metrics[f"{split}_perplexity"] = score.perplexity
        metrics[f"{split}_token_perplexity"] = score.token_perplexity
        metrics[f"{split}_loss"] = score.nll / score.words
        if prepared.unit == "character":
            metrics[f"{split}_bits_per_character"] = score.nll / score.words / math.log(2)
    write_scores(folder, score.documents)
    protocol = {
        "unit": prepared.unit,
        "context_window": evaluation.context_window,
        "tokens_per_sample": task.args.tokens_per_sample,
        "split": "test",
        "checkpoint": evaluation.checkpoint,
    }
    return metrics, protocol


def _evaluate_translation(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
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
    protocol = {**_decoding(evaluation), "sacrebleu": score.signature, "split": "test"}
    return {"test_bleu": score.bleu, "test_chrf": score.chrf, "test_ter": score.ter}, protocol


def _decoding(evaluation: DictConfig) -> dict[str, Any]:
    return {
        "beam": evaluation.beam,
        "length_penalty": evaluation.length_penalty,
        "checkpoint": evaluation.checkpoint,
        "averaged_checkpoints": 1,
    }


def _evaluate_documents(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    score = score_documents(
        model,
        task,
        prepared,
        "test",
        beam=evaluation.beam,
        length_penalty=evaluation.length_penalty,
        max_tokens=evaluation.max_tokens,
    )
    write_scores(folder, score.documents)
    write_atomically(folder / HYPOTHESES, "".join(f"{line}\n" for line in score.hypotheses))
    metrics = {
        "test_bleu": score.bleu,
        "test_sentence_bleu": score.sentence_bleu,
        "test_chrf": score.chrf,
        "test_pieces": score.pieces,
        "test_misaligned_pieces": score.misaligned,
    }
    budget = prepared.manifest["dataset"]["budget"]
    protocol = {"unit": "document", "budget": budget, **_decoding(evaluation)}
    return metrics, {**protocol, "sacrebleu": score.signature, "split": "test"}


def _evaluate_recall(
    model: Any, task: Any, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    metrics: dict[str, float] = {}
    for split in ("valid", "test"):
        score = score_recall(model, task, split, max_tokens=evaluation.max_tokens)
        metrics[f"{split}_accuracy"] = score.accuracy
        metrics[f"{split}_exact_match"] = score.exact_match
        metrics[f"{split}_loss"] = score.loss
    write_scores(folder, score.sequences)
    protocol = {
        "unit": "answer",
        "decoding": "greedy",
        "length": task.args.tokens_per_sample,
        "split": "test",
        "checkpoint": evaluation.checkpoint,
    }
    return metrics, protocol
