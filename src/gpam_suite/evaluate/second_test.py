"""The second test set of a translation, scored as the first one.

Its source is cut as the first one's was (the run's own tokeniser, sub-words and dictionary), and it is translated and
scored by the same protocol. It has no ``scores.jsonl``: what is tested over sentences is the first set.
"""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from gpam_suite.data import Prepared
from gpam_suite.data.second_test import second_test_file
from gpam_suite.data.text.encoding import Encoder
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.translation import scores_of, sentences_of, translated


def score_second_test(
    model: Any, task: Any, prepared: Prepared, evaluation: DictConfig, folder: Path
) -> dict[str, float]:
    """BLEU, chrF and TER of what is kept in ``folder``; see :func:`gpam_suite.evaluate.translation.evaluate`."""
    sources, references = (
        read_lines(second_test_file(folder, language)) for language in (prepared.source_lang, prepared.target_lang)
    )
    encoder = Encoder.of(prepared, prepared.source_lang, task.source_dictionary)
    sentences = sentences_of([encoder.ids(f"{line}\n") for line in sources], task)
    hypotheses = translated(model, task, prepared, evaluation, sentences)
    scores, *_ = scores_of(hypotheses, references, prepared.manifest["preprocessing"]["lowercase"])
    return {f"second_test_{name}": score for name, score in scores.items()}
