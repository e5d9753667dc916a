"""The softmax controls match what they say they match, on built models."""

import pytest
from runs import composed

from gpam.errors import UsageError
from gpam_suite.benchmark.models import CASES, build
from gpam_suite.config.compose import check
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.tools.cost import build_on_meta


@pytest.mark.parametrize("dataset", ["python_docs", "cldr_de_en"])
def test_more_heads_doubles_them_and_nothing_else(dataset):
    plain = fairseq_config(composed(f"dataset={dataset}")).model
    more = fairseq_config(composed(f"dataset={dataset}", "model=softmax_more_heads")).model
    differing = {key for key in plain if plain[key] != more[key]}
    assert differing == {key for key in plain if key.endswith("coder_attention_heads")}
    assert all(more[key] == 2 * plain[key] for key in differing)


@pytest.mark.parametrize("dataset", ["python_docs", "cldr_de_en"])
def test_matched_parameters(dataset):
    """Within half a unit of every feed-forward layer of daGPAM's parameter count."""
    counts = {}
    for model in ("softmax", "dagpam", "softmax_matched_params"):
        built = build_on_meta(fairseq_config(composed(f"dataset={dataset}", f"model={model}")), 24, 24)
        counts[model] = sum(parameter.numel() for parameter in built.parameters())
    unit = 2 * 128 + 1
    assert counts["dagpam"] > counts["softmax"]
    assert abs(counts["softmax_matched_params"] - counts["dagpam"]) <= 6 * unit / 2


def test_matched_flops_adds_the_second_branch():
    """daGPAM adds one N x N x d product (scores) and its d x d map: at 128 tokens of width 128, 4 heads."""
    plain = fairseq_config(composed()).model
    matched = fairseq_config(composed("model=softmax_matched_flops")).model
    per_token = 2 * 128 * 128 + 2 * 128 * 32  # scores of the negative branch, W_Q^-; two for each multiply-add
    assert matched.decoder_ffn_embed_dim - plain.decoder_ffn_embed_dim == round(per_token / (4 * 128))


def test_a_control_that_cannot_be_is_refused():
    with pytest.raises(UsageError, match="twice the 128 heads"):
        check(composed("model=softmax_more_heads", "++fairseq.model.decoder_attention_heads=128"))
    with pytest.raises(UsageError, match=r"fairseq\.task\.tokens_per_sample: got 0, wanted a whole number"):
        check(composed("model=softmax_matched_flops", "fairseq.task.tokens_per_sample=0"))
    with pytest.raises(UsageError, match="task"):
        check(composed("model=softmax_more_heads", "~fairseq.task"))
    with pytest.raises(UsageError, match="did you mean 'more_heads'"):
        check(composed("model=softmax_more_heads", "model.control=more_head"))


def test_benchmark_contenders_share_their_parameters():
    stock, own = (build(CASES["lm_laptop"], name, seed=1) for name in ("stock", "softmax"))
    theirs = dict(stock.named_parameters())
    assert all(value.equal(theirs[name]) for name, value in own.named_parameters())
