"""Everything that is measured of one model, as plain data."""

from typing import Any

from gpam_fairseq.trainer.histories import measure

import torch
from torch import nn

from gpam_suite.inside import lemma_checks, measures
from gpam_suite.inside.observe import Observation, watching
from gpam_suite.inside.texts import SPLIT, Text, text_for_maps, texts


def look(model: nn.Module, task: Any, prepared: Any, count: int, *, maps: bool = False) -> dict[str, Any]:
    """What :mod:`measures` and :mod:`lemma_checks` say of ``model`` reading ``count`` texts of its test set.

    ``streams``, ``modules``, ``lemmas``; ``gradients``: norm of dL/dW of each attention map, L the mean over the texts
    of the negative log-likelihood in nats a token; ``texts``: how many of how many tokens; with ``maps`` the weights
    of one text, ``[heads, target, source]`` by module path, with its words.
    """
    chosen = texts(task, prepared, count)
    observations = [_observe(model, text) for text in chosen]
    found = {
        "texts": {"split": SPLIT, "count": len(chosen), "tokens": [text.target.numel() for text in chosen]},
        "streams": measures.streams(observations),
        "modules": measures.modules(observations),
        "lemmas": lemma_checks.check(observations),
        "gradients": _gradients(model, chosen),
    }
    return found | ({"maps": _maps(model, text_for_maps(task, prepared))} if maps else {})


@torch.no_grad()
def _observe(model: nn.Module, text: Text) -> Observation:
    with watching(model) as observation:
        model(**text.arguments)
    return observation


def _gradients(model: nn.Module, chosen: list[Text]) -> dict[str, float]:
    model.zero_grad()
    for text in chosen:
        (text.loss(model) / len(chosen)).backward()
    norms = measure(model).get("gradient", {})
    model.zero_grad()
    return norms


def _maps(model: nn.Module, text: Text) -> dict[str, Any]:
    seen = _observe(model, text).attention
    weights = {
        path: None if one.weights is None else one.weights.double().round(decimals=3).tolist()
        for path, one in seen.items()
    }
    return {"words": text.words, "weights": weights}
