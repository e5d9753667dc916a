"""What a model costs, counted: parameters by part, and training FLOPs a token by formula."""

from typing import Any

from gpam_fairseq.attention import GPAMMultiheadAttention

from fairseq.modules import MultiheadAttention
from fairseq.modules.adaptive_softmax import TiedLinear
from torch import nn

from gpam_suite.records.schema import PARAMETERS

BACKWARD = 2  # the backward pass does each matrix product twice: for its inputs and for its weights
_COUNTED_OTHERWISE = {"self_attn", "encoder_attn", "tail"}  # or not at all


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Trained parameters: ``total``, and by part, ``embedding`` (token tables, the tied output too), ``attention``
    (the four projections), ``mechanism`` (what the mechanism adds to softmax), ``other``."""
    parts: dict[int, str] = {}
    for name, module in model.named_modules():
        if isinstance(module, MultiheadAttention):
            parts |= dict.fromkeys(map(id, module.parameters()), "attention")
            if hasattr(module, "mechanism"):
                parts |= dict.fromkeys(map(id, module.mechanism.parameters()), "mechanism")
        elif name.endswith(("embed_tokens", "output_projection", "adaptive_softmax")):
            parts |= dict.fromkeys(map(id, module.parameters()), "embedding")
    counts = dict.fromkeys(PARAMETERS, 0)
    for parameter in model.parameters():
        if parameter.requires_grad:
            counts["total"] += parameter.numel()
            counts[parts.get(id(parameter), "other")] += parameter.numel()
    return counts


def train_flops_per_token(model: nn.Module, target: float, source: float | None = None) -> float:
    """FLOPs of one training update for each target token: three times the forward pass, two for each multiply-add.

    Forward pass of one sentence of ``target`` tokens (and ``source`` tokens): two operations for each weight of each
    matrix and token that passes it, and the core of each attention by its mechanism's formula (``Facts.flops``, which
    counts causal attention in full). Elementwise work and looking up embeddings count nothing; the output projection
    counts, tied or not, of an adaptive softmax its head alone: few tokens pass the rest.
    """
    source = target if source is None else source
    operations = 0.0
    for name, module in model.named_modules():
        tokens = source if name.startswith("encoder.") else target
        if isinstance(module, GPAMMultiheadAttention):
            keys = target if module.self_attention and not name.startswith("encoder.") else source
            mechanism = module.mechanism
            operations += mechanism.facts.flops(mechanism.site, round(tokens), round(keys), mechanism.options)
            operations += 2 * (module.q_proj.weight.numel() + module.out_proj.weight.numel()) * tokens
            operations += 2 * (module.k_proj.weight.numel() + module.v_proj.weight.numel()) * keys
        elif isinstance(module, nn.Linear | TiedLinear) and not _COUNTED_OTHERWISE & {*name.split(".")}:
            once = name.endswith(("encoder_hidden_proj", "encoder_cell_proj"))  # a recurrent decoder's first state
            operations += 2 * module.weight.numel() * (1 if once else tokens)
        elif isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
            weights = (weight for key, weight in module.named_parameters() if key.startswith("weight"))
            operations += 2 * sum(weight.numel() for weight in weights) * tokens
        elif getattr(module, "share_input_output_embed", False) and not hasattr(module, "output_projection"):
            operations += 2 * module.embed_tokens.weight.numel() * tokens  # a recurrent decoder's, tied
    return (1 + BACKWARD) * operations / target


def lengths(prepared: Any, tokens_per_sample: int | None) -> tuple[float, float | None]:
    """Target and source tokens of a training sentence: a language model's sample, or the means of the corpus."""
    if tokens_per_sample is not None:
        return float(tokens_per_sample), None
    counts = prepared.manifest["splits"]["train"]
    return counts["target"]["tokens"] / counts["lines"], counts["source"]["tokens"] / counts["lines"]
