"""Kind "step": a whole training step, forward, backward and Adam."""

from collections.abc import Callable, Mapping
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from gpam.errors import UsageError
from gpam_suite.benchmark.comparison import Contender, relative_error
from gpam_suite.benchmark.models import Case, batches, build, by_weights, case_of, contender_names, gradients, loss_of
from gpam_suite.benchmark.real_lengths import PAD
from gpam_suite.benchmark.settings import Settings

Made = dict[str, Callable[[], Contender]]


def contenders(shape: Mapping[str, Any], settings: Settings) -> Made:
    """The same random tokens for all; with several batches a step is one after the other, and they are compared by
    the sum of their losses."""
    case = case_of(shape)
    try:
        read = batches(case, settings)
    except UsageError as error:
        refusal = str(error)
        return {name: lambda name=name: Contender(name, refusal=refusal) for name in contender_names()}
    data = [{name: text.to(settings.device) for name, text in one.items()} for one in read]
    tokens = sum(int(one["target"].ne(PAD).sum()) for one in data)

    def make(name: str, of: str, model: nn.Module, wanted: dict[str, list[Tensor]]) -> Contender:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

        def loss_and_gradient() -> Tensor:
            optimizer.zero_grad()
            total = torch.zeros((), device=settings.device)
            for one in data:
                loss = loss_of(case, model, one)
                loss.backward()
                total += loss.detach()
            return total

        def run() -> None:
            for one in data:
                optimizer.zero_grad()
                loss_of(case, model, one).backward()
                optimizer.step()

        error = against_weights(of, model, loss_and_gradient, wanted)
        return Contender(name, run, error, facts={"tokens": tokens})

    return every_contender(case, settings, make)


def every_contender(
    case: Case, settings: Settings, make: Callable[[str, str, nn.Module, dict[str, list[Tensor]]], Contender]
) -> Made:
    """``make(name, mechanism, model, numbers wanted so far)`` for stock fairseq, the registry and the peers."""
    wanted: dict[str, list[Tensor]] = {}

    def one(name: str, of: str) -> Contender:
        try:
            model = build(case, name, settings.seed).to(settings.device)
        except UsageError as error:
            return Contender(name, refusal=str(error))
        return make(name, of, model, wanted)

    return {name: lambda name=name, of=of: one(name, of) for name, of in contender_names().items()}


def against_weights(
    of: str, model: nn.Module, work: Callable[[], Tensor], wanted: dict[str, list[Tensor]]
) -> Callable[[], float]:
    """The error of ``work``'s result, and of the gradients it leaves, to the same model's by its weights, in float32.

    The contenders of one mechanism have one reference, made by the first of them: for softmax that is stock fairseq
    itself. Numbers are compared without attention dropout. Gradients are compared by the norm of their difference: a
    ReLU whose input is within rounding of zero may fall on either side, which changes a few of them visibly.
    """

    def numbers() -> list[Tensor]:
        return [work(), gradients(model)]

    def distance(got: list[Tensor], want: list[Tensor]) -> float:
        gradient_error = float((got[1] - want[1]).norm() / want[1].norm())
        return max(relative_error(got[:1], want[:1]), gradient_error)

    def error() -> float:
        attentions = [module for module in model.modules() if isinstance(module, MultiheadAttention)]
        for attention in attentions:
            attention.eval()
        if of not in wanted:
            with by_weights(model):
                wanted[of] = numbers()
        found = distance(numbers(), wanted[of])
        for attention in attentions:
            attention.train()
        return found

    return error
