"""Measures of rank collapse, gradients and attention weights, and the paper's lemmas; torch only.

Matrices of tokens are ``[..., tokens, width]``, attention weights ``[..., target, source]``; leading dimensions are
batches. Everything is computed in float64, whatever the precision of what is given.
"""

from gpam.analysis.gradients import gradient_norms
from gpam.analysis.norms import composite_norm
from gpam.analysis.rank import effective_rank, mean_cosine_similarity, singular_values, stable_rank
from gpam.analysis.residual import Residual, residual, residual_norm
from gpam.analysis.weights import attention_to_first, entropy, negative_mass, shares, sharpness

__all__ = [
    "Residual",
    "attention_to_first",
    "composite_norm",
    "effective_rank",
    "entropy",
    "gradient_norms",
    "mean_cosine_similarity",
    "negative_mass",
    "residual",
    "residual_norm",
    "shares",
    "sharpness",
    "singular_values",
    "stable_rank",
]
