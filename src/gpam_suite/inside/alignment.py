"""What cross attention does with sentences of the test set: its negative weight and its sharpness by the length of the
source, and its weights on sentences whose translation copies words."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from gpam.analysis import negative_mass, sharpness
from gpam_suite.inside.observe import NONE, observed
from gpam_suite.inside.texts import Text, pairs_of, pairs_with_copies

PAIRS = 200
SENTENCES = 3


def alignment(model: nn.Module, task: Any, prepared: Any) -> dict[str, Any]:
    """Of the cross attention of ``model``; empty where there is none, or no weights to be had.

    ``pairs``: of evenly spread sentences ``[tokens of the source, share of negative weight, sharpness]``, means over
    layers and heads. ``sentences``: of some that copy words from the source ``words`` of both sides and ``weights``
    ``[target, source]`` of the last layer, mean over heads.
    """
    seen = list(_seen(model, pairs_of(task, PAIRS)))
    copying = list(_seen(model, pairs_with_copies(task, prepared, SENTENCES)))
    pairs = [[text.arguments["src_tokens"].numel(), *numbers(cross)] for text, cross in seen]
    pictures = [
        {"words": text.words, "weights": cross[-1].mean(0).round(decimals=3).tolist()} for text, cross in copying
    ]
    return {"pairs": pairs, "sentences": pictures} if pairs else {}


def numbers(cross: Tensor) -> tuple[float, float]:
    """Share of negative weight and sharpness of ``[layers, heads, target, source]``, means over all but the source."""
    return float(negative_mass(cross).mean()), float(sharpness(cross).mean())


def _seen(model: nn.Module, texts: list[Text]) -> Iterator[tuple[Text, Tensor]]:
    """Texts with the weights ``[layers, heads, target, source]`` of their cross attention."""
    for text in texts:
        modules = observed(model, text.arguments).attention.values()
        cross = [one.weights.double() for one in modules if one.role == "cross" and one.shown != NONE]
        if cross:
            yield text, torch.stack(cross)
