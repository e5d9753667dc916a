"""Language models judged by exact answers: fairseq task ``gpam_recall`` and criterion ``answer_cross_entropy``.

A sequence is one line of text: a context, the mark ``=``, and then what is asked and answered. An *answer* is a value
(a symbol whose name starts with ``v``) behind the mark. The model reads every position and is trained on the answers
only, the mean of ``-ln p(answer | everything before it)``; so do the set-ups that these tasks follow (multi-query
associative recall, Arora et al., arXiv 2312.04927; copying, Gu, Goel, Re, arXiv 2111.00396). What is random cannot be
learnt, and would only add noise to the gradient.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from fairseq import metrics, utils
from fairseq.criterions import register_criterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion, CrossEntropyCriterionConfig
from fairseq.data import BaseWrapperDataset
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import SAMPLE_BREAK_MODE_CHOICES, LanguageModelingConfig, LanguageModelingTask
from torch import Tensor

from gpam.errors import UsageError

MARK = "="  # ends the context
VALUE = "v"  # first letter of every value; nothing else starts with it


@dataclass
class RecallConfig(LanguageModelingConfig):
    """fairseq's options of language modelling; one sequence a sample."""

    sample_break_mode: SAMPLE_BREAK_MODE_CHOICES = field(default="eos", metadata={"help": "eos: one sequence a sample"})


@register_task("gpam_recall", dataclass=RecallConfig)
class RecallTask(LanguageModelingTask):
    """Language modelling with targets at the answers only; everywhere else the target is padding."""

    def __init__(self, args: Any, dictionary: Any, output_dictionary: Any = None, targets: Any = None) -> None:
        super().__init__(args, dictionary, output_dictionary, targets)
        if args.sample_break_mode != "eos":
            raise UsageError(
                f"fairseq.task.sample_break_mode: got {args.sample_break_mode}, wanted eos: a sample of this task is "
                "one sequence"
            )
        if MARK not in dictionary:
            raise UsageError(
                f"the dictionary in {args.data} has no '{MARK}', the mark in front of the answers; take a data set "
                "with answers, such as copy or selective_recall"
            )

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> "AnswerDataset":
        super().load_dataset(split, epoch, combine, **kwargs)
        self.datasets[split] = AnswerDataset(self.datasets[split], self.dictionary)
        return self.datasets[split]


class AnswerDataset(BaseWrapperDataset):
    """Batches of a language model's data set whose target is padding wherever it is no answer."""

    def __init__(self, dataset: Any, dictionary: Any) -> None:
        super().__init__(dataset)
        self.mark, self.pad = dictionary.index(MARK), dictionary.pad()
        self.values = torch.tensor([symbol.startswith(VALUE) for symbol in dictionary.symbols])

    def collater(self, samples: list[dict[str, Any]]) -> dict[str, Any]:
        batch = super().collater(samples)
        if batch:
            target = batch["target"]
            batch["target"] = target.masked_fill(~self.answers(target), self.pad)
        return batch

    def answers(self, tokens: Tensor) -> Tensor:
        """Bool, of the shape of ``tokens`` [..., length]: the values behind the mark."""
        return self.values[tokens] & (tokens == self.mark).cumsum(-1).bool()


@register_criterion("answer_cross_entropy", dataclass=CrossEntropyCriterionConfig)
class AnswerCrossEntropy(CrossEntropyCriterion):
    """Cross entropy averaged over the answers (the targets that are not padding); also logs how many are right.

    fairseq's ``cross_entropy`` would divide by all tokens read, so that the step would shrink with the length.
    """

    def forward(self, model: Any, sample: dict[str, Any], reduce: bool = True) -> tuple[Tensor, int, dict[str, Any]]:
        net_output = model(**sample["net_input"])
        target = model.get_targets(sample, net_output)
        is_answer = target.ne(self.padding_idx)
        predicted = model.get_normalized_probs(net_output, log_probs=True)[is_answer]
        loss = F.nll_loss(predicted, target[is_answer], reduction="sum" if reduce else "none")
        answers = int(is_answer.sum())
        log = {
            "loss": loss.data,
            "correct": predicted.argmax(-1).eq(target[is_answer]).sum(),
            "ntokens": sample["ntokens"],
            "nsentences": target.size(0),
            "sample_size": answers,
        }
        return loss, answers, log

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Loss (bits an answer), perplexity an answer, and accuracy in percent."""
        loss, correct, answers = (
            sum(log.get(key, 0) for log in logging_outputs) for key in ("loss", "correct", "sample_size")
        )
        metrics.log_scalar("loss", loss / answers / math.log(2), answers, round=3)
        metrics.log_scalar("accuracy", 100 * correct / answers, answers, round=3)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["loss"].avg))
