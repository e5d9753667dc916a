"""The presets are fairseq's, and daGPAM adds what the paper says it adds."""

import gpam_fairseq  # noqa: F401  (before fairseq)

import pytest
import torch
import toy
from fairseq.modules.fairseq_dropout import FairseqDropout

PRESETS = {
    "gpam_lm": "transformer_lm",
    "gpam_lm_base": "transformer_lm --decoder-normalize-before",  # fairseq's base_lm_architecture has no name there
    "gpam_lm_wiki103": "transformer_lm_wiki103",
    "gpam_nmt": "transformer",
    "gpam_nmt_base": "transformer",
    "gpam_iwslt_de_en": "transformer_iwslt_de_en",
    "gpam_wmt_en_de": "transformer_wmt_en_de",
}
#: The dictionaries of IWSLT14 de-en with 10000 joint merges, and a joint one of WMT14 en-de with 37000.
IWSLT, WMT = (8848, 6632), (37000, 37000)


def build(arch, types, *more):
    """On no device: sizes without memory."""
    source = toy.dictionary(types[0])
    target = source if types[0] == types[1] else toy.dictionary(types[1])
    task = ["--task", "language_modeling"] if "_lm" in arch else []
    with torch.device("meta"):
        return toy.build("--arch", arch, *task, *more, source=source, target=target)


def shapes(model):
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def dropouts(model):
    return {name: module.p for name, module in model.named_modules() if isinstance(module, FairseqDropout)}


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("arch", PRESETS)
def test_with_softmax_a_preset_is_fairseqs(arch):
    types = (70_000, 70_000) if arch == "gpam_lm_wiki103" else (1000, 1000)
    stock_arch, *changes = PRESETS[arch].split()
    own, stock = build(arch, types), build(stock_arch, types, *changes)
    assert shapes(own) == shapes(stock)
    assert dropouts(own) == dropouts(stock)
    assert {m.site.dropout for _, m in toy.mechanisms(own)} == {stock.decoder.layers[0].self_attn.dropout_module.p}


@pytest.mark.parametrize(
    "arch, types, more, total, percent, head_dim",
    [
        ("gpam_iwslt_de_en", IWSLT, ["--share-decoder-input-output-embed"], "39.47", "0.747", 128),
        ("gpam_wmt_en_de", WMT, ["--share-all-embeddings"], "63.1", "0.117", 64),
    ],
    ids=["IWSLT14", "WMT14"],
)
def test_dagpam_adds_one_square_map_a_module(arch, types, more, total, percent, head_dim):
    """The paper's sizes of its translation models."""
    softmax = count(build(arch, types, *more))
    added = count(build(arch, types, *more, "--attention", "dagpam")) - softmax
    assert added == (6 + 2 * 6) * head_dim**2
    places = len(total.split(".")[1])
    assert f"{softmax / 1e6:.{places}f}" == total
    assert f"{100 * added / softmax:.3f}" == percent
