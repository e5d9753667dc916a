"""Accuracy at the answers of generated sequences (task ``recall``)."""

from pathlib import Path
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import torch
import torch.nn.functional as F
from fairseq import utils
from omegaconf import DictConfig

from gpam_suite.data import Prepared
from gpam_suite.records.lines import write_scores


def summed_up(sequences: list[dict[str, Any]]) -> dict[str, float]:
    """Of :func:`score_recall`'s rows: right answers and sequences of right answers alone, in percent, and the mean of
    ``-ln p(answer | everything before it)``, in nats."""
    total = {key: sum(row[key] for row in sequences) for key in ("answers", "correct", "nll")}
    return {
        "accuracy": 100 * total["correct"] / total["answers"],
        "exact_match": 100 * sum(row["correct"] == row["answers"] for row in sequences) / len(sequences),
        "loss": total["nll"] / total["answers"],
    }


@torch.no_grad()
def score_recall(model: Any, task: Any, split: str, *, max_tokens: int) -> list[dict[str, Any]]:
    """The most probable symbol at every answer of ``split``, given everything true before it, against the answer.

    Where all answers of a sequence are right, greedy decoding from the mark on gives the same symbols: each step would
    read what it was given here. At most ``max_tokens`` tokens are in one batch.

    Returns:
        A row a sequence: ``answers`` (how many), ``correct`` ones, their sum of ``nll`` in nats.
    """
    dataset = task.load_dataset(split) or task.dataset(split)
    device = next(model.parameters()).device
    batches = task.get_batch_iterator(dataset, max_tokens=max_tokens, max_positions=model.max_positions())
    rows: dict[int, dict[str, Any]] = {}
    for batch in batches.next_epoch_itr(shuffle=False):
        moved = utils.apply_to_sample(lambda tensor: tensor.to(device), batch)
        logits, _ = model(**moved["net_input"])
        target = moved["target"]
        is_answer = target.ne(task.target_dictionary.pad())
        correct = logits.argmax(-1).eq(target) & is_answer
        nll = F.cross_entropy(logits.float().transpose(1, 2), target, reduction="none").double() * is_answer
        table = zip(batch["id"].tolist(), *(value.sum(-1).tolist() for value in (is_answer, correct, nll)), strict=True)
        for index, answers, right, loss in table:
            rows[index] = {"sequence": index, "answers": answers, "correct": right, "nll": loss}
    return [rows[index] for index in range(len(dataset))]


def evaluate(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    """See :mod:`gpam_suite.evaluate.score`."""
    metrics: dict[str, float] = {}
    for split in ("valid", "test"):
        sequences = score_recall(model, task, split, max_tokens=evaluation.max_tokens)
        metrics |= {f"{split}_{name}": value for name, value in summed_up(sequences).items()}
    write_scores(folder, sequences)
    protocol = {
        "unit": "answer",
        "decoding": "greedy",
        "length": task.args.tokens_per_sample,
        "split": "test",
        "checkpoint": evaluation.checkpoint,
    }
    return metrics, protocol
