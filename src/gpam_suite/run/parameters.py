"""Parameters by part."""

import gpam_fairseq  # noqa: F401

from fairseq.modules import MultiheadAttention
from torch import nn


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Trained parameters: ``total``, and by part, ``embedding`` (token tables, the tied output too), ``attention``
    (the four projections), ``mechanism`` (what the mechanism adds to softmax), ``other``."""
    attention: set[int] = set()
    mechanism: set[int] = set()
    embedding: set[int] = set()
    for name, module in model.named_modules():
        if isinstance(module, MultiheadAttention):
            extra = {id(p) for p in module.mechanism.parameters()} if hasattr(module, "mechanism") else set()
            mechanism |= extra
            attention |= {id(p) for p in module.parameters()} - extra
        elif name.endswith(("embed_tokens", "output_projection", "adaptive_softmax")):
            embedding |= {id(p) for p in module.parameters()}
    counts = {"total": 0, "embedding": 0, "attention": 0, "mechanism": 0, "other": 0}
    for parameter in model.parameters():
        if parameter.requires_grad:
            counts["total"] += parameter.numel()
            kinds = {"embedding": embedding, "attention": attention, "mechanism": mechanism}
            part = next((kind for kind, members in kinds.items() if id(parameter) in members), "other")
            counts[part] += parameter.numel()
    return counts
