"""The fast step: fairseq's training with faster ways to the same numbers, put in place for as long as a block runs.

- dropout masks of few random draws (:mod:`.dropout`), in fairseq's modules and in the mechanisms,
- cross entropy, with smoothed labels or without, by chunks of rows (:mod:`.cross_entropy`),
- Adam in one pass (:mod:`.adam`),
- memory that malloc keeps (:mod:`.memory`),
- on AMD, matrix products at the processor's speed (:mod:`.products`).

It changes random masks and last bits. ``gpu.fast=false`` and ``GPAM_FAST=0`` leave fairseq's own step as it is.
"""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from gpam_fairseq.trainer import products
from gpam_fairseq.trainer.adam import fused_step
from gpam_fairseq.trainer.cross_entropy import cross_entropy
from gpam_fairseq.trainer.dropout import dropout
from gpam_fairseq.trainer.memory import keep_memory
from gpam_fairseq.trainer.replacing import replaced

import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.distributed import LegacyDistributedDataParallel, ModuleProxyWrapper
from fairseq.models import FairseqDecoder, FairseqLanguageModel
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.optim.adam import Adam
from torch import Tensor, nn

from gpam.attention.base import Mechanism

log = logging.getLogger(__name__)
_FOR_MANY_DEVICES = (ModuleProxyWrapper, LegacyDistributedDataParallel, nn.parallel.DistributedDataParallel)
_WITHOUT_PRODUCT = (TransformerModelBase.forward, FairseqLanguageModel.forward)  # where features_only=True asks so


@contextlib.contextmanager
def fast_step() -> Iterator[None]:
    """While this holds, fairseq trains by the fast step."""
    if products.state().slow:
        log.warning("matrix products: %s", products.state().why)
    keep_memory()
    with (
        replaced(FairseqDropout, forward=_dropout),
        replaced(Mechanism, dropped=_dropped),
        replaced(CrossEntropyCriterion, forward=_chunked(CrossEntropyCriterion)),
        replaced(LabelSmoothedCrossEntropyCriterion, forward=_chunked(LabelSmoothedCrossEntropyCriterion)),
        replaced(Adam, step=fused_step),
    ):
        yield


def _dropout(module: FairseqDropout, x: Tensor, inplace: bool = False) -> Tensor:
    return dropout(x, module.p) if module.p > 0 and (module.training or module.apply_during_inference) else x


def _dropped(mechanism: Mechanism, weights: Tensor) -> Tensor:
    return dropout(weights, mechanism.active_dropout) if mechanism.active_dropout else weights


def output_weight(decoder: nn.Module) -> Tensor | None:
    """``[types, width]``, where a decoder ends in a product with it and a softmax, in float32 or float64; else None:
    adaptive softmax, a bias, an output layer of its own, half precision."""
    projection = getattr(decoder, "output_projection", None)
    plain = (
        isinstance(decoder, TransformerDecoderBase)
        and type(decoder).output_layer is TransformerDecoderBase.output_layer
        and type(decoder).get_normalized_probs is FairseqDecoder.get_normalized_probs
        and decoder.adaptive_softmax is None
        and type(projection) is nn.Linear
        and projection.bias is None
        and projection.weight.dtype in (torch.float32, torch.float64)
    )
    return projection.weight if plain and not torch.is_autocast_enabled(projection.weight.device.type) else None


def _chunked(criterion_class: type) -> Any:
    """The ``forward`` of a criterion, by chunks where that is possible."""
    stock, compute_loss = criterion_class.forward, criterion_class.compute_loss

    def forward(criterion: Any, model: Any, sample: dict[str, Any], reduce: bool = True) -> Any:
        bare = model
        while isinstance(bare, _FOR_MANY_DEVICES):
            bare = bare.module
        # A wrapper that looks for unused parameters in the output would take the output layer for one.
        looks = getattr(model, "find_unused_parameters", False)
        weight = output_weight(bare.decoder) if type(bare).forward in _WITHOUT_PRODUCT and not looks else None
        left_out = getattr(criterion, "ignore_prefix_size", 0) or getattr(criterion, "report_accuracy", False)
        if weight is None or not reduce or left_out or type(criterion).compute_loss is not compute_loss:
            return stock(criterion, model, sample, reduce)
        output = model(**sample["net_input"], features_only=True)
        target = bare.get_targets(sample, output).flatten()
        hidden = output[0].flatten(0, 1)
        words = target.ne(criterion.padding_idx)
        if not bool(words.all()):
            hidden, target = hidden[words], target[words]
        loss, nll = cross_entropy(hidden, weight, target, getattr(criterion, "eps", 0.0))
        size = sample["target"].size(0) if criterion.sentence_avg else sample["ntokens"]
        logged = {
            "loss": loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": sample["target"].size(0),
            "sample_size": size,
        }
        if criterion_class is LabelSmoothedCrossEntropyCriterion:
            logged["nll_loss"] = nll
        return loss, size, logged

    return forward
