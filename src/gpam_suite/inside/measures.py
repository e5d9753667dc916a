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
from gpam_suite.inside.observe import Observation, Seen

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
    """Measure to its value for each matrix; all are of one shape."""
    together = torch.stack(matrices)
    return {name: measure(together).tolist() for name, measure in TOKENS.items()}


def streams(observations: list[Observation]) -> dict[str, dict[str, list[float]]]:
    """Stack to measure to its mean over the texts before the first and behind each layer."""
    return {
        stack: _means([of_tokens(seen.streams[stack]) for seen in observations]) for stack in observations[0].streams
    }


def modules(observations: list[Observation]) -> dict[str, dict[str, Any]]:
    """Module path to what its attention does, means over the texts; a list has one number a head.

    ``negative_mass``; ``row_sum``; ``entropy`` (nats) and ``first`` (attention to the first token), means over rows
    that see several tokens.
    """
    found = {}
    for path in observations[0].attention:
        seen = [observation.attention[path] for observation in observations]
        site = seen[0].module.mechanism.site
        where = {"role": site.role, "layer": site.layer}
        found[path] = where | _means([_of_weights(one) for one in seen])
    return found


def _of_weights(seen: Seen) -> dict[str, list[float]]:
    several = seen.visible.sum(-1) > 1
    return {
        "negative_mass": negative_mass(seen.weights).tolist(),
        "entropy": entropy(seen.weights)[:, several].mean(-1).tolist(),
        "first": attention_to_first(seen.weights)[:, several].mean(-1).tolist(),
        "row_sum": seen.weights.double().sum(-1).mean(-1).tolist(),
    }


def _means(texts: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Means over the texts, place by place."""
    columns = {name: zip(*(text[name] for text in texts), strict=True) for name in texts[0]}
    return {name: [sum(column) / len(column) for column in own] for name, own in columns.items()}
