"""Kind "decode": incremental decoding, one token after another from an empty cache; the time is that of a step."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gpam.attention import mechanism_class
from gpam_suite.benchmark.comparison import Contender, relative_error
from gpam_suite.benchmark.models import batch, by_weights, case_of
from gpam_suite.benchmark.settings import Settings
from gpam_suite.benchmark.shares import time_shares
from gpam_suite.benchmark.training_step import Made, every_contender
from gpam_suite.common.tasks import NMT

State = dict[str, dict[str, Tensor | None]]


def contenders(shape: Mapping[str, Any], settings: Settings) -> Made:
    """``sentences`` hypotheses (sentences times beam) of ``length`` tokens, attention weights not asked for."""
    case = case_of(shape)
    data = {name: text.to(settings.device) for name, text in batch(case, settings.seed).items()}
    data["target"] = data["target"].clamp(min=4)  # no padding: fairseq gives its positions only to whole prefixes

    def make(name: str, of: str, model: nn.Module, wanted: dict[str, list[Tensor]]) -> Contender:
        if not mechanism_class(of).facts.incremental:
            return Contender(name, refusal=mechanism_class(of).facts.limits)
        model.eval()
        model.make_generation_fast_(need_attn=False)
        with torch.no_grad():
            encoded = None
            if case.task == NMT.name:
                encoded = model.encoder(data["source"], data["source"].ne(1).sum(1))

        @torch.no_grad()
        def decode() -> tuple[Tensor, State]:
            state: State = {}
            steps = range(1, case.length + 1)
            logits = [model.decoder(data["target"][:, :end], encoded, incremental_state=state)[0] for end in steps]
            return torch.cat(logits, 1), state

        @torch.no_grad()
        def error() -> float:
            """To the logits of all positions at once, by the weights."""
            if of not in wanted:
                with by_weights(model):
                    wanted[of] = [model.decoder(data["target"], encoded)[0]]
            return relative_error([decode()[0]], wanted[of])

        facts = {"tokens": case.tokens, "steps": case.length, "cache_bytes": cache_bytes(decode()[1])}
        return Contender(name, decode, error, facts=facts, measure=lambda: {"shares": time_shares(decode)})

    return every_contender(case, settings, make)


def cache_bytes(state: State) -> int:
    """Bytes that an incremental state keeps for each hypothesis: keys, values, a mechanism's own; not the padding."""
    kept = [tensor for entry in state.values() for name, tensor in entry.items() if name != "prev_key_padding_mask"]
    return sum(tensor.numel() * tensor.element_size() for tensor in kept if tensor is not None)
