"""Softmax controls that readers of the paper asked for: more heads, daGPAM's parameters, daGPAM's FLOPs.

A control changes the sizes of a recipe. The matched ones widen the feed-forward layers, whose cost is
``2 width + 1`` parameters and ``4 width`` FLOPs a token (forward) for each unit, by what daGPAM with its default
options adds to the attention modules of a layer, rounded to whole units.
"""

from typing import Any

from gpam.attention import Site, mechanism_class, options_of
from gpam.errors import UsageError
from gpam_suite.common.options import one_of, whole_number

CONTROLS = ("more_heads", "matched_params", "matched_flops")
TRANSLATION_LENGTH = 30
"""Tokens a sentence at which FLOPs are matched; a language model is matched at its sample's length."""


def controlled_sizes(control: str, model: dict[str, Any], task: dict[str, Any]) -> dict[str, int]:
    """The sizes of fairseq's ``model`` that ``control`` changes, with their new values.

    Raises:
        UsageError: no such control, sizes that are missing or no whole numbers, or heads that cannot be doubled.
    """
    one_of(control, CONTROLS, "model.control")
    changed: dict[str, int] = {}
    for stack, modules in (("encoder", 1), ("decoder", 2 if "encoder_layers" in model else 1)):
        if f"{stack}_layers" not in model:
            continue
        sizes = [f"{stack}_{of}" for of in ("embed_dim", "attention_heads", "ffn_embed_dim")]
        for name in sizes:
            whole_number(model.get(name), 1, f"fairseq.model.{name}")
        width, heads, units = (model[name] for name in sizes)
        if control == "more_heads":
            if width % (2 * heads):
                raise UsageError(f"twice the {heads} heads do not divide the width of {width}; choose another recipe")
            changed[f"{stack}_attention_heads"] = 2 * heads
            continue
        site, facts, options = Site(width, heads), mechanism_class("dagpam").facts, options_of("dagpam")
        if control == "matched_params":
            extra = modules * facts.extra_parameters(site, options) / (2 * width + 1)
        else:
            length = task.get("tokens_per_sample", TRANSLATION_LENGTH)
            whole_number(length, 1, "fairseq.task.tokens_per_sample")
            softmax = mechanism_class("softmax").facts.flops(site, length, length, None)
            extra = modules * (facts.flops(site, length, length, options) - softmax) / length / (4 * width)
        changed[f"{stack}_ffn_embed_dim"] = units + round(extra)
    return changed
