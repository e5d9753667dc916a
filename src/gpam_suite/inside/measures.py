"""Numbers of observations: how alike tokens are after each layer, and what attention weights look like."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from gpam.analysis import (
    attention_to_first,
    composite_norm,
    effective_rank,
    entropy,
    mean_cosine_similarity,
    negative_mass,
    residual_norm,
    stable_rank,
)
from gpam_suite.inside.observe import NONE, Observation, Seen
from gpam_suite.inside.store import QUANTILES

RESIDUAL_TOLERANCE = 1e-3


def relative_residual(x: Tensor) -> Tensor:
    """``||res(X)||_{1,inf} / ||X||_{1,inf}`` of ``[..., tokens, width]``, to 0.1 %: 0 where all tokens are equal, and
    free of the scale of ``X``."""
    return (residual_norm(x, RESIDUAL_TOLERANCE) / composite_norm(x)).nan_to_num(0.0)


TOKENS: dict[str, Callable[[Tensor], Tensor]] = {
    "residual": relative_residual,
    "cosine": mean_cosine_similarity,
    "stable_rank": stable_rank,
    "effective_rank": effective_rank,
}
"""What is measured of tokens ``[..., tokens, width]``."""


def of_tokens(matrices: list[Tensor]) -> dict[str, list[float]]:
    """Measure to its value for each matrix; those of one shape are measured together."""
    found = {name: [0.0] * len(matrices) for name in TOKENS}
    for shape in {matrix.shape for matrix in matrices}:
        places = [place for place, matrix in enumerate(matrices) if matrix.shape == shape]
        together = torch.stack([matrices[place] for place in places])
        for name, measure in TOKENS.items():
            for place, value in zip(places, measure(together).tolist(), strict=True):
                found[name][place] = value
    return found


def streams(observations: list[Observation]) -> dict[str, dict[str, list[float]]]:
    """Stack to measure to its mean over the texts before the first and behind each layer."""
    return {
        stack: _means([of_tokens(seen.streams[stack]) for seen in observations]) for stack in observations[0].streams
    }


def modules(observations: list[Observation]) -> dict[str, dict[str, Any]]:
    """Module path to what its attention does, means over the texts; a list has one number a head.

    ``output``: measures of what leaves the module, before the skip connection; ``shown``: whether weights are all that
    the mechanism does (``all``, ``part``, ``none``); and where there are weights ``negative_mass``, ``entropy`` (nats,
    mean over rows) beside ``entropy_uniform``, ``first`` (attention to the first token, rows that see others too)
    beside ``first_uniform``, ``row_sum`` and ``quantiles`` (``store.QUANTILES`` of the weights that the mask leaves).
    """
    outputs = _means([of_tokens([one.output for one in seen.attention.values()]) for seen in observations])
    found = {}
    for place, path in enumerate(observations[0].attention):
        seen = [observation.attention[path] for observation in observations]
        site, shown = seen[0].module.mechanism.site, seen[0].shown
        output = {name: values[place] for name, values in outputs.items()}
        found[path] = {"role": site.role, "layer": site.layer, "shown": shown, "output": output}
        if shown != NONE:
            everything = torch.cat([one.weights[:, one.visible].double().flatten() for one in seen])
            quantiles = torch.quantile(everything, torch.tensor(QUANTILES, dtype=torch.float64)).tolist()
            found[path] |= _means(list(map(_of_weights, seen))) | {"quantiles": quantiles}
    return found


def _of_weights(seen: Seen) -> dict[str, list[float]]:
    count = seen.visible.sum(-1)
    several = count > 1
    uniform = count[several].double()
    return {
        "negative_mass": negative_mass(seen.weights).tolist(),
        "entropy": entropy(seen.weights)[:, several].mean(-1).tolist(),
        "entropy_uniform": [float(uniform.log().mean())],
        "first": attention_to_first(seen.weights)[:, several].mean(-1).tolist(),
        "first_uniform": [float((1 / uniform).mean())],
        "row_sum": seen.weights.double().sum(-1).mean(-1).tolist(),
    }


def _means(texts: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Means over the texts, place by place."""
    columns = {name: zip(*(text[name] for text in texts), strict=True) for name in texts[0]}
    return {name: [sum(column) / len(column) for column in own] for name, own in columns.items()}
