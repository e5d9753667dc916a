"""Evaluate a model by its task's protocol, and leave the scores of the test set in the run's folder."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gpam_suite.common.tasks import LM, NMT, RECALL
from gpam_suite.data import Prepared
from gpam_suite.data.options import plain
from gpam_suite.data.second_test import second_test_checksum
from gpam_suite.data.store.download import has_checksums
from gpam_suite.evaluate import documents, language_model, recall, translation

BY_TASK = {LM.name: language_model.evaluate, NMT.name: translation.evaluate, RECALL.name: recall.evaluate}
BY_KIND = {"documents": documents.evaluate}
"""Kinds of data sets with a protocol of their own."""


def evaluate(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> tuple[dict[str, float], dict[str, Any]]:
    """Metrics of the test set (but for translations of validation too) and of the second test set where there is one,
    and the protocol that they follow.

    ``evaluation`` is the configuration's node. ``scores.jsonl`` (every task) and ``hypotheses.txt`` (translation)
    of the test set are written into ``folder``.
    """
    by_protocol = BY_KIND.get(prepared.kind, BY_TASK[prepared.task])
    metrics, protocol = by_protocol(model, task, prepared, evaluation, folder)
    if second := evaluation.get("second_test"):
        scores, kind = translation.score_second_test(model, task, prepared, evaluation, folder)
        metrics |= scores
        protocol["second_test"] = ", ".join([second.name, *kind])
        if not has_checksums(plain(second, "evaluation.second_test")):
            protocol["second_test_checksum"] = second_test_checksum(folder)
    return metrics, protocol
