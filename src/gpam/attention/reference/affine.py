"""One softmax ``A``, mixed with the uniform matrix ``D``, the identity ``I`` or its own square."""

from torch import Tensor

from gpam.attention.reference.core import masked_softmax, own_key, per_head, scaled_scores, uniform, visible_sources


def softmax_scaled(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    lambda_pos: float | Tensor = 0.5,
    lambda_neg: float | Tensor = 0.5,
    *,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """``P = (1 + lambda+ - lambda-) A``, each lambda one number or one a head: daGPAM's row sum on one softmax."""
    visible = visible_sources(q, k, key_padding_mask, causal)
    factor = 1 + per_head(lambda_pos) - per_head(lambda_neg)
    weights = factor * masked_softmax(scaled_scores(q, k), visible)
    return weights @ v, weights


def attnscale(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | Tensor = 0.0,
    *,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """``P = D + (1 + w_h)(A - D)`` (Wang et al. 2022, arXiv 2203.05962); ``scale`` is ``w``, one number or one a head.

    A row sums to 1.
    """
    visible = visible_sources(q, k, key_padding_mask, causal)
    attention = masked_softmax(scaled_scores(q, k), visible)
    low_pass = uniform(visible, attention)
    weights = low_pass + (1 + per_head(scale)) * (attention - low_pass)
    return weights @ v, weights


def centered(
    q: Tensor, k: Tensor, v: Tensor, *, key_padding_mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """``P = A - D`` (Ali et al. 2023, arXiv 2306.01610). A row sums to 0."""
    visible = visible_sources(q, k, key_padding_mask, causal)
    attention = masked_softmax(scaled_scores(q, k), visible)
    weights = attention - uniform(visible, attention)
    return weights @ v, weights


def shaped(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    identity: float | Tensor = 1.0,
    attention: float | Tensor = 1.0,
    center: float | Tensor = 1.0,
    *,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """``P = a I + b A - c D`` (Noci et al. 2023, arXiv 2306.17759), each factor one number or one a head.

    A row whose own position is visible sums to ``a + b - c``.
    """
    visible = visible_sources(q, k, key_padding_mask, causal)
    softmax = masked_softmax(scaled_scores(q, k), visible)
    weights = (
        per_head(identity) * own_key(visible, softmax)
        + per_head(attention) * softmax
        - per_head(center) * uniform(visible, softmax)
    )
    return weights @ v, weights


def gfsa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    high_order: float | Tensor = 0.0,
    order: int = 3,
    identity: float = 0.0,
    *,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """``P = w_0 I + A + w_K (A + (K - 1)(A^2 - A))`` (Choi et al. 2024, arXiv 2312.04234).

    ``high_order`` is ``w_K``, one number or one a head, ``order`` is ``K``, ``identity`` is ``w_0``. A row sums to
    ``w_0 + 1 + w_K``.
    """
    visible = visible_sources(q, k, key_padding_mask, causal)
    attention = masked_softmax(scaled_scores(q, k), visible)
    power = attention + (order - 1) * (attention @ attention - attention)
    weights = identity * own_key(visible, attention) + attention + per_head(high_order) * power
    return weights @ v, weights
