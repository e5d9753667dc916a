"""The formulas, and nothing else.

Each function is called alike: ``name(q, k, v, <its own parameters>, *, key_padding_mask=None, causal=False)``; the
parameters stand at their initial values where those are no matrices of random numbers.

Shapes: ``q`` is ``[batch, heads, target, head_dim]``, ``k`` and ``v`` are ``[batch, heads, source, head_dim]``,
``key_padding_mask`` is ``[batch, source]`` and true at padding. With ``causal`` a target sees the sources up to its
own position. Each returns the output ``[batch, heads, target, head_dim]`` and the weights
``[batch, heads, target, source]``. A row that sees no source has zero weights.

The modules used in training are compared with these, so keep them free of anything that is there for speed.
"""

from gpam.attention.reference.affine import attnscale, centered, gfsa, shaped, softmax_scaled
from gpam.attention.reference.core import (
    dagpam,
    masked_softmax,
    merge_heads,
    own_key,
    per_head,
    scaled_scores,
    softmax,
    split_heads,
    uniform,
    visible_count,
    visible_sources,
)
from gpam.attention.reference.difference import differential, differential_v2
from gpam.attention.reference.output import contranorm, contranorm_after_block, gated, neutreno
from gpam.attention.reference.score import coda, cog, nap, non, sigmoid

__all__ = [
    "attnscale",
    "centered",
    "coda",
    "cog",
    "contranorm",
    "contranorm_after_block",
    "dagpam",
    "differential",
    "differential_v2",
    "gated",
    "gfsa",
    "masked_softmax",
    "merge_heads",
    "nap",
    "neutreno",
    "non",
    "own_key",
    "per_head",
    "scaled_scores",
    "shaped",
    "sigmoid",
    "softmax",
    "softmax_scaled",
    "split_heads",
    "uniform",
    "visible_count",
    "visible_sources",
]
