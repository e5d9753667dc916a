"""Kinds "layer", "step" and "decode": a layer of each stack, a training step, incremental decoding."""

from collections.abc import Callable, Mapping
from typing import Any

import gpam_fairseq  # noqa: F401  (before fairseq)

import numpy as np
import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from gpam.attention import names
from gpam_suite.benchmark.comparison import Contender, Maker, Settings, relative_error
from gpam_suite.benchmark.counting import count_flops
from gpam_suite.benchmark.models import FIRST, PAD, Case, batch, build, by_weights, case_of, gradients, loss_of
from gpam_suite.benchmark.peers import PEERS
from gpam_suite.benchmark.profiling import profiled, time_shares
from gpam_suite.common.tasks import NMT

State = dict[str, dict[str, Tensor | None]]
Wanted = dict[str, list[Tensor]]
"""The right numbers of a mechanism, made by the first of its contenders: for softmax that is stock fairseq itself."""
OfModel = Callable[[str, nn.Module, Wanted], Contender]


def layers(shape: Mapping[str, Any], settings: Settings) -> tuple[list[str], Maker]:
    """A decoder layer of a language model, or an encoder and a decoder layer of a translation model, forward and
    backward, without embeddings and output projection."""
    case = case_of({**shape, "layers": 1})
    generator = torch.Generator().manual_seed(settings.seed)
    x = torch.randn(case.length, case.sentences, case.width, generator=generator).to(settings.device)
    upstream = torch.randn(x.shape, generator=generator).to(settings.device)
    padding = None
    if case.task == NMT.name:
        padding = torch.zeros(case.sentences, case.length, dtype=torch.bool, device=settings.device)
        padding[: case.sentences // 3, case.length * 2 // 3 :] = True

    def make(of: str, model: nn.Module, wanted: Wanted) -> Contender:
        given = x.clone().requires_grad_()

        def run() -> Tensor:
            model.zero_grad()
            encoded = model.encoder.layers[0](given, padding) if case.task == NMT.name else None
            mask = model.decoder.buffered_future_mask(given)
            out = model.decoder.layers[0](given, encoded, padding, self_attn_mask=mask)[0]
            out.backward(upstream)
            return out.detach()

        return Contender(run, _against_weights(of, model, run, wanted), lambda: profiled(run, settings.device))

    return _every_contender(case, settings, make)


def steps(shape: Mapping[str, Any], settings: Settings) -> tuple[list[str], Maker]:
    """Forward, backward and Adam on the same random tokens for all."""
    case = case_of(shape)
    data = {name: text.to(settings.device) for name, text in batch(case, settings.seed).items()}

    def make(of: str, model: nn.Module, wanted: Wanted) -> Contender:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        tokens = int(data["target"].ne(PAD).sum())

        def loss_and_gradient() -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(case, model, data)
            loss.backward()
            return loss.detach()

        def run() -> None:
            loss_and_gradient()
            optimizer.step()

        error = _against_weights(of, model, loss_and_gradient, wanted)
        return Contender(run, error, lambda: {"tokens": tokens, "flops": count_flops(run)})

    return _every_contender(case, settings, make)


def decoding(shape: Mapping[str, Any], settings: Settings) -> tuple[list[str], Maker]:
    """One token after another from an empty cache: ``sentences`` hypotheses (sentences times beam) of ``length``
    tokens, attention weights not asked for. The right numbers are the logits of all positions at once."""
    case = case_of(shape)
    data = {name: text.to(settings.device) for name, text in batch(case, settings.seed).items()}
    data["target"] = data["target"].clamp(min=FIRST)  # fairseq gives its padding positions only to whole prefixes

    def make(of: str, model: nn.Module, wanted: Wanted) -> Contender:
        model.eval()
        model.make_generation_fast_(need_attn=False)
        with torch.no_grad():
            encoded = None
            if case.task == NMT.name:
                encoded = model.encoder(data["source"], data["source"].ne(PAD).sum(1))

        @torch.no_grad()
        def decode() -> tuple[Tensor, State]:
            state: State = {}
            ends = range(1, case.length + 1)
            logits = [model.decoder(data["target"][:, :end], encoded, incremental_state=state)[0] for end in ends]
            return torch.cat(logits, 1), state

        @torch.no_grad()
        def error() -> float:
            if of not in wanted:
                with by_weights(model):
                    wanted[of] = [model.decoder(data["target"], encoded)[0]]
            return relative_error([decode()[0]], wanted[of])

        def measure() -> dict[str, Any]:
            """The cache is what a state keeps for each hypothesis: keys, values, a mechanism's own; not the padding."""
            entries = [(name, kept) for entry in decode()[1].values() for name, kept in entry.items()]
            cache = sum(kept.nbytes for name, kept in entries if kept is not None and name != "prev_key_padding_mask")
            facts: dict[str, Any] = {"tokens": case.tokens, "steps": case.length, "cache_bytes": cache}
            facts["flops"] = count_flops(decode)
            if settings.device == "cpu":  # on a GPU launches alone would be timed
                facts["shares"] = time_shares(decode)
            return facts

        return Contender(decode, error, measure)

    return _every_contender(case, settings, make)


def _every_contender(case: Case, settings: Settings, make: OfModel) -> tuple[list[str], Maker]:
    """``make(mechanism, model, numbers wanted so far)`` for stock fairseq, the registry and the peers."""
    of = {"stock": "softmax"} | {name: name for name in names()}
    of |= {name: peer.of for name, peer in PEERS.items() if name != "softmax-fairseq"}  # which stock itself is
    wanted: Wanted = {}
    return list(of), lambda name: make(of[name], build(case, name, settings.seed).to(settings.device), wanted)


def _against_weights(of: str, model: nn.Module, work: Callable[[], Tensor], wanted: Wanted) -> Callable[[], float]:
    """The error of ``work``'s result, and of the gradients it leaves, to the same model's by its weights, in float32.

    Numbers are compared without attention dropout. Gradients are compared by the norm of their difference: a ReLU whose
    input is within rounding of zero may fall on either side, which changes a few of them visibly.
    """

    def numbers() -> list[Tensor]:
        return [work(), gradients(model)]

    def error() -> float:
        attentions = [module for module in model.modules() if isinstance(module, MultiheadAttention)]
        for attention in attentions:
            attention.eval()
        if of not in wanted:
            with by_weights(model):
                wanted[of] = numbers()
        (result, gradient), (wanted_result, wanted_gradient) = numbers(), wanted[of]
        for attention in attentions:
            attention.train()
        gradient_error = float((gradient - wanted_gradient).norm() / wanted_gradient.norm())
        return float(np.max([relative_error([result], [wanted_result]), gradient_error]))  # NaN where one is

    return error
