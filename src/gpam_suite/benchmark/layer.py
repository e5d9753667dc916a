"""Kind "layer": one layer of each stack, forward and backward, without embeddings and output projection."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gpam_suite.benchmark.comparison import Contender
from gpam_suite.benchmark.models import Case, case_of
from gpam_suite.benchmark.settings import Settings
from gpam_suite.benchmark.training_step import against_weights, every_contender
from gpam_suite.common.tasks import NMT


def contenders(shape: Mapping[str, Any], settings: Settings) -> dict[str, Callable[[], Contender]]:
    """A decoder layer of a language model, or an encoder and a decoder layer of a translation model."""
    case = case_of({**shape, "layers": 1})
    generator = torch.Generator().manual_seed(settings.seed)
    x = torch.randn(case.length, case.sentences, case.width, generator=generator).to(settings.device)
    upstream = torch.randn(x.shape, generator=generator).to(settings.device)
    padding = None
    if case.task == NMT.name:
        padding = torch.zeros(case.sentences, case.length, dtype=torch.bool, device=settings.device)
        padding[: case.sentences // 3, case.length * 2 // 3 :] = True

    def make(name: str, of: str, model: nn.Module, wanted: dict[str, list[Tensor]]) -> Contender:
        given = x.clone().requires_grad_()

        def run() -> Tensor:
            model.zero_grad()
            out = _layers(case, model, given, padding)
            out.backward(upstream)
            return out.detach()

        return Contender(name, run, against_weights(of, model, run, wanted))

    return every_contender(case, settings, make)


def _layers(case: Case, model: nn.Module, x: Tensor, padding: Tensor | None) -> Tensor:
    encoded = model.encoder.layers[0](x, padding) if case.task == NMT.name else None
    mask = model.decoder.buffered_future_mask(x)
    return model.decoder.layers[0](x, encoded, padding, self_attn_mask=mask)[0]
