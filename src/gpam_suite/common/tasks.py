"""The tasks: what a model is trained and judged by. A task's name is spelled here and nowhere else in the suite.

A new task is a :class:`Task` here, a file in ``evaluate/`` that scores it, and data sets of it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """What everybody has to know of a task; ``TASKS`` finds it by its name."""

    name: str
    title: str
    headline: str
    """The metric that it is judged by; a record with status ``finished`` must hold it."""
    further: tuple[str, ...]
    """Metrics that stand beside the headline one where the records have them."""
    protocol: tuple[str, ...]
    """What two headline numbers must share to be comparable, at least; a finished record must hold it."""
    units: tuple[str, ...]
    """What ``scores.jsonl`` may count by, the usual one first: a document, a passage, a sentence, a sequence."""
    statistics: tuple[str, ...]
    """Columns of ``scores.jsonl`` that the headline metric is a function of the sums of: the unit's size, and what came
    of it. Empty for translation, whose column ``bleu`` holds sacreBLEU's ten."""
    unit_score: str
    """What one unit is scored by, in words; ``{unit}`` is what perplexity is counted by."""
    unit_size: str
    scored: str = "token"
    """What the loss is a mean over."""
    parallel: bool = False
    """Whether its text has two languages."""


LM = Task(
    name="lm",
    title="Language modelling",
    headline="test_perplexity",
    further=("test_bits_per_character",),
    protocol=("unit", "context_window", "tokens_per_sample", "split", "checkpoint"),
    units=("document", "passage"),
    statistics=("words", "nll"),
    unit_score="loss in nats per {unit}",
    unit_size="{unit}s",
)
NMT = Task(
    name="nmt",
    title="Translation",
    headline="test_bleu",
    further=(
        "test_chrf",
        "test_ter",
        "test_sentence_bleu",
        "test_misaligned_pieces",
        "second_test_bleu",
        "second_test_chrf",
        "second_test_ter",
    ),
    protocol=("beam", "length_penalty", "checkpoint", "averaged_checkpoints", "sacrebleu", "split"),
    units=("sentence", "document"),
    statistics=(),
    unit_score="sentence BLEU",
    unit_size="reference length",
    parallel=True,
)
RECALL = Task(
    name="recall",
    title="Recall",
    headline="test_accuracy",
    further=("test_exact_match",),
    protocol=("unit", "decoding", "length", "split", "checkpoint"),
    units=("sequence",),
    statistics=("answers", "correct"),
    unit_score="accuracy in percent",
    unit_size="answers",
    scored="answer",
)
TASKS = {task.name: task for task in (LM, NMT, RECALL)}
