"""``gpam.nn.convert`` on torch's modules and on models of transformers, built here with random weights."""

import copy

import pytest
import torch
import torch.nn.utils.prune
from torch import nn
from torch.testing import assert_close

from gpam.attention import Site, build
from gpam.attention.base import Mechanism
from gpam.attention.parts import merge_heads
from gpam.errors import UsageError
from gpam.nn import MultiheadAttention, convert
from gpam.nn.hugging_face import attention

ZERO = {"lambda_pos": 0.0, "lambda_neg": 0.0}


def transformer(**options):
    torch.manual_seed(0)
    return nn.Transformer(8, 2, 2, 3, 16, 0.0, batch_first=True, **options).eval()


def sentences():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, 6, 8, generator=generator), torch.randn(2, 4, 8, generator=generator)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_whole_transformer_there_and_back(norm_first):
    model = transformer(norm_first=norm_first)
    source, target = sentences()
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    call = {"tgt_mask": mask, "tgt_is_causal": True}
    call |= {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    want, names = model(source, target, **call), list(model.state_dict())
    done = convert(model, "dagpam", **ZERO)
    assert len(done.replaced) == 2 + 2 * 3 and not done.left
    assert done.replaced["decoder.layers.2.multihead_attn"] == "DaGPAM"
    for mode in (torch.enable_grad, torch.no_grad):  # without gradients torch has a path of its own in evaluation
        with mode():
            assert_close(model(source, target, **call), want)
    convert(model, "dagpam", lambda_pos=0.5, lambda_neg=0.5, lambdas="trainable")
    with torch.no_grad():
        assert (model(source, target, **call) - want).abs().max() > 1e-3
    convert(model, "softmax")
    assert {type(m) for m in model.modules() if isinstance(m, nn.MultiheadAttention)} == {nn.MultiheadAttention}
    assert list(model.state_dict()) == names
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            assert_close(model(source, target, **call), want)


@pytest.mark.parametrize("name", ["neutreno", "gfsa", "differential", "gated", "shaped", "cog", "sigmoid", "coda"])
def test_mechanisms_of_depth_and_of_the_blocks_input_in_a_stack(name):
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 3)
    converted = copy.deepcopy(encoder)
    done = convert(converted, name)
    x, _ = sentences()
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    output = converted(x, src_key_padding_mask=padding)
    output.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in converted.parameters())
    sites = [converted.get_submodule(path).mechanism.site for path in done.replaced]
    assert [(site.layer, site.layers) for site in sites] == [(0, 3), (1, 3), (2, 3)]
    with torch.no_grad():
        evaluated = converted.eval()(x, src_key_padding_mask=padding)
    if name != "gfsa":  # its factors start where it is softmax
        assert (evaluated - encoder.eval()(x, src_key_padding_mask=padding)).abs().max() > 1e-4
    assert_close(evaluated, output)


def test_what_cannot_be_converted_stays_and_is_said():
    model = nn.ModuleDict(
        {
            "known": nn.MultiheadAttention(8, 2, 0.25, bias=False, kdim=4, vdim=6),
            "told": MultiheadAttention(8, 2, "softmax", role="cross"),
            "extra": nn.MultiheadAttention(8, 2, add_bias_kv=True),
        }
    )
    done = convert(model, "dagpam")
    assert done.replaced == {"known": "DaGPAM", "told": "DaGPAM"}
    assert done.left == {"extra": "it has add_bias_kv or add_zero_attn"}
    assert str(done) == "known: DaGPAM\ntold: DaGPAM\nextra: left, it has add_bias_kv or add_zero_attn"
    assert type(model["extra"]) is nn.MultiheadAttention
    assert [model[name].mechanism.site.role for name in ("known", "told")] == ["cross", "cross"]
    assert model["known"].mechanism.site.dropout == 0.25


def test_a_module_in_several_places_stays_one():
    shared = nn.MultiheadAttention(8, 2, batch_first=True)
    model = nn.ModuleDict({"blocks": nn.ModuleList([shared, shared]), "last": shared})
    assert set(convert(model, "dagpam", **ZERO).replaced) == {"blocks.0", "blocks.1", "last"}
    assert type(model["last"]) is MultiheadAttention
    assert model["blocks"][0] is model["blocks"][1] is model["last"]


def test_softmax_takes_the_place_of_what_was_ours_before_and_torchs_comes_back():
    model = nn.ModuleDict({"ours": MultiheadAttention(8, 2, "nap"), "torchs": nn.MultiheadAttention(8, 2)})
    for mechanism, now in (("dagpam", "DaGPAM"), ("gated", "Gated"), ("softmax", "Softmax"), ("softmax", "Softmax")):
        replaced = {"ours": now, "torchs": "torch.nn.MultiheadAttention" if mechanism == "softmax" else now}
        assert convert(model, mechanism).replaced == replaced
    x = torch.randn(3, 2, 8)
    assert_close(model["ours"](x, x, x, is_causal=True)[0][:1], model["ours"](x[:1], x[:1], x[:1])[0])


def test_cross_attention_is_known_by_its_name():
    model = nn.ModuleDict({name: nn.MultiheadAttention(8, 2) for name in ("self_attn", "cross_attn")})
    assert convert(model, "dagpam", negative_in="self").replaced == {"self_attn": "DaGPAM", "cross_attn": "Softmax"}


def test_hooks_stay_and_can_be_removed():
    model, seen = transformer(), []
    attention = model.encoder.layers[1].self_attn
    handles = [
        attention.register_forward_pre_hook(lambda module, given: seen.append("before")),
        attention.register_forward_hook(lambda module, given, kwargs, output: seen.append("after"), with_kwargs=True),
        attention.register_full_backward_hook(lambda module, wrt, grad: seen.append("gradient")),
    ]
    for mechanism in ("dagpam", "softmax"):
        convert(model, mechanism)
        model(*sentences()).sum().backward()
        assert seen == ["before", "after", "gradient"]
        seen.clear()
    for handle in handles:
        handle.remove()
    model(*sentences()).sum().backward()
    assert not seen


def test_refusals_leave_the_model_as_it_was():
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
    for mechanism, options, message in (
        ("dagpan", {}, "did you mean 'dagpam'"),
        ("dagpam", {"lambda": 1.0}, "has no option 'lambda'"),
        ("contranorm", {}, "behind the block"),
        ("neutreno", {}, "from layer to layer"),
        ("cog", {}, "a stack of 1, wanted 3 layers"),
    ):
        with pytest.raises(UsageError, match=message):
            convert(model, mechanism, **options)
    assert type(model[0].self_attn) is nn.MultiheadAttention
    with pytest.raises(UsageError, match=r"Linear has no attention module that can be converted: wanted torch\.nn"):
        convert(nn.Linear(2, 2), "dagpam")
    with pytest.raises(UsageError, match="got a MultiheadAttention for a model, wanted the module that holds it"):
        convert(nn.MultiheadAttention(8, 2), "dagpam")
    with pytest.raises(UsageError, match="attn: it has add_bias_kv"):
        convert(nn.ModuleDict({"attn": nn.MultiheadAttention(8, 2, add_zero_attn=True)}), "dagpam")


def test_weights_random_state_and_gradients_are_shared():
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, 0.1, batch_first=True, dtype=torch.float64))
    weight, state = model[0].self_attn.in_proj_weight, torch.get_rng_state()
    convert(model, "dagpam", query_neg_init="xavier")
    own = model[0].self_attn
    assert isinstance(own, MultiheadAttention) and own.in_proj_weight is weight and own.batch_first
    assert own.mechanism.query_neg.dtype == torch.float64 and own.mechanism.site.dropout == 0.1
    assert torch.equal(torch.get_rng_state(), state)


# Models of transformers


SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = {"vocab_size": 40, "max_position_embeddings": 32}


def gpt2(hf):
    sizes = {"n_embd": 16, "n_layer": 3, "n_head": 2, "vocab_size": 40, "n_positions": 32}
    return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))


def bert(hf):
    return hf.BertForMaskedLM(hf.BertConfig(**SIZES, **WORDS))


def vit(hf):
    return hf.ViTForImageClassification(hf.ViTConfig(**SIZES, image_size=8, patch_size=4, num_labels=3))


def llama(hf):
    """Grouped queries, rotary positions, and heads whose widths do not add up to the model's."""
    sizes = SIZES | WORDS | {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    return hf.LlamaForCausalLM(hf.LlamaConfig(**sizes))


def neox(hf):
    return hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(**SIZES, **WORDS))


def t5(hf):
    """An encoder and a decoder, with biases by position; heads' widths do not add up to the model's."""
    sizes = {"d_model": 16, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 40}
    return hf.T5ForConditionalGeneration(hf.T5Config(**sizes, pad_token_id=0, decoder_start_token_id=0))


def bart(hf):
    """An encoder and a decoder, whose cross attention nothing but its name tells."""
    sizes = {"d_model": 16, "max_position_embeddings": 16, "vocab_size": 40, "pad_token_id": 0, "eos_token_id": 1}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 32}
    return hf.BartForConditionalGeneration(hf.BartConfig(**sizes))


MODELS = [gpt2, bert, vit, llama, neox]


@pytest.fixture
def hf():
    return pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[huggingface]'")


def built(make, hf):
    """A model whose attention differs from word to word: its own initial weights are too small for that."""
    torch.manual_seed(0)
    model = make(hf).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(8 if parameter.dim() == 2 else 1)
    return model


def given(make):
    generator = torch.Generator().manual_seed(1)
    if make is vit:
        return {"pixel_values": torch.randn(2, 3, 8, 8, generator=generator)}
    ids = torch.randint(1, 40, (2, 7), generator=generator)
    mask = torch.tensor([[1] * 7, [1] * 5 + [0] * 2]) if make is bert else torch.tensor([[1] * 7, [0] * 2 + [1] * 5])
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("make", MODELS)
def test_a_model_of_transformers_there_and_back(make, hf):
    model, inputs = built(make, hf), given(make)
    want, names = model(**inputs).logits, list(model.state_dict())
    before = model.config._attn_implementation
    done = convert(model, "dagpam", **ZERO)
    assert len(done.replaced) == 3 and set(done.replaced.values()) == {"DaGPAM"} and not done.left
    real = inputs.get("attention_mask", torch.ones(want.shape[:-1])).bool()
    assert_close(model(**inputs).logits[real], want[real], rtol=1e-4, atol=1e-5)
    assert [name for name in model.state_dict() if name not in names] == [f"{p}.gpam.query_neg" for p in done.replaced]
    convert(model, "dagpam", lambdas="trainable")
    assert (model(**inputs).logits[real] - want[real]).abs().max() > 1e-4
    model.train()(**inputs).logits.square().sum().backward()
    assert all(p.grad.isfinite().all() for n, p in model.named_parameters() if ".gpam." in n)
    convert(model, "softmax")
    assert list(model.state_dict()) == names and model.config._attn_implementation == before
    assert_close(model.eval()(**inputs).logits, want)


@pytest.mark.parametrize("make", [gpt2, llama])
def test_generation_with_its_cache_is_generation_without(make, hf):
    model = built(make, hf)
    convert(model, "dagpam", lambda_pos=0.7, lambda_neg=0.4)
    inputs = given(make)
    generate = {"max_new_tokens": 6, "min_new_tokens": 6, "do_sample": False, "pad_token_id": 0, **inputs}
    scores = {"output_scores": True, "return_dict_in_generate": True}
    cached = model.generate(use_cache=True, **generate, **scores)
    anew = model.generate(use_cache=False, **generate, **scores)
    assert torch.equal(cached.sequences, anew.sequences)
    assert_close(torch.stack(cached.scores), torch.stack(anew.scores), rtol=1e-4, atol=1e-5)


def test_a_static_caches_empty_places_are_not_seen(hf):
    """What is generated with it is what is generated without a cache, and with both lambdas 0 the old model's."""
    model, inputs = built(gpt2, hf), {"input_ids": given(gpt2)["input_ids"]}
    generate = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, **inputs}
    generate |= {"output_scores": True, "return_dict_in_generate": True}
    static = {"cache_implementation": "static", "disable_compile": True}
    old = torch.stack(model.generate(use_cache=False, **generate).scores)
    for lambdas, same in ((0.0, True), (0.5, False)):
        convert(model, "dagpam", lambda_pos=lambdas, lambda_neg=lambdas)
        anew = torch.stack(model.generate(use_cache=False, **generate).scores)
        assert_close(torch.stack(model.generate(**generate, **static).scores), anew, rtol=1e-4, atol=1e-5)
        assert torch.allclose(anew, old, rtol=1e-4, atol=1e-5) == same


def test_biases_by_position_of_a_static_caches_empty_places(hf):
    model, ids = built(t5, hf), given(t5)["input_ids"]
    convert(model, "dagpam", lambda_pos=0.5, lambda_neg=0.5)
    generate = {"input_ids": ids, "max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    generate |= {"output_scores": True, "return_dict_in_generate": True}
    anew = torch.stack(model.generate(use_cache=False, **generate).scores)
    static = model.generate(**generate, cache_implementation="static", disable_compile=True).scores
    assert_close(torch.stack(static), anew, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["shaped", "neutreno"])
def test_a_static_caches_empty_places_are_not_a_targets_own(name, hf):
    model, inputs = built(llama, hf), {"input_ids": given(llama)["input_ids"]}
    generate = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, **inputs}
    generate |= {"output_scores": True, "return_dict_in_generate": True}
    convert(model, name)
    for parameter_name, parameter in model.named_parameters():
        if ".gpam." in parameter_name:
            torch.nn.init.uniform_(parameter, 0.2, 0.9)
    anew = torch.stack(model.generate(use_cache=False, **generate).scores)
    static = model.generate(**generate, cache_implementation="static", disable_compile=True).scores
    assert_close(torch.stack(static), anew, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("named", [True, False])
def test_two_towers_are_two_stacks(named):
    def tower():
        return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3)

    both = nn.ModuleDict({"one": tower(), "other": tower()}) if named else nn.ModuleList([tower(), tower()])
    convert(both.eval(), "neutreno")
    sites = [module.site for module in both.modules() if isinstance(module, Mechanism)]
    assert [(site.layer, site.layers) for site in sites] == [(0, 3), (1, 3), (2, 3)] * 2
    one, other = both.values() if named else both
    x, y = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    one(x)
    alone = other(y)
    one(y)
    assert torch.equal(other(y), alone)


@pytest.mark.parametrize("change", ["in_proj_weight", "in_proj_bias", "k_proj_weight", "exchanged"])
def test_projections_that_are_not_torchs_own_are_left(change):
    """Pruned ones, and one in whose place something else stands."""
    model = nn.Sequential(
        nn.MultiheadAttention(8, 2, kdim=4 if change == "k_proj_weight" else 8), nn.MultiheadAttention(8, 2)
    )
    if change == "exchanged":
        model[0].out_proj = nn.Identity()
    else:
        torch.nn.utils.prune.l1_unstructured(model[0], change, amount=2)
    assert list(convert(model, "dagpam").left) == ["0"]
    with pytest.raises(UsageError, match=r"got a str for a model, wanted a torch\.nn\.Module"):
        convert("model", "dagpam")


def test_a_part_of_an_encoder_that_makes_nested_tensors_is_one_sentence():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).eval()
    convert(model.layers, "dagpam")
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with torch.no_grad(), pytest.raises(UsageError, match=r"got nested tensors, .*: convert the whole encoder"):
        model(x, src_key_padding_mask=padding)
    convert(model, "dagpam")
    with torch.no_grad():
        assert model(x, src_key_padding_mask=padding).shape == x.shape


@pytest.mark.parametrize(
    ("make", "own", "cross"), [(bart, "self_attn", "encoder_attn"), (t5, "SelfAttention", "EncDecAttention")]
)
def test_attention_from_decoder_to_encoder_is_cross_attention(make, own, cross, hf):
    model = built(make, hf)
    ids = torch.tensor([[5, 6, 7, 8], [9, 7, 0, 0]])
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long(), "decoder_input_ids": torch.tensor([[1, 5], [1, 9]])}
    generate = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, "eos_token_id": 1}
    want, written = model(**inputs).logits, model.generate(inputs["input_ids"], **generate)
    done = convert(model, "shaped")  # softmax stands across
    assert {path.rpartition(".")[2]: now for path, now in done.replaced.items()} == {
        own: "Shaped",
        cross: "Softmax",
    }
    places = {path: module.gpam.site for path, module in model.named_modules() if hasattr(module, "gpam")}
    assert [(site.role, site.layer, site.layers) for site in places.values()] == [
        *(("encoder", 0, 2), ("encoder", 1, 2)),
        *(("decoder", 0, 2), ("cross", 0, 2), ("decoder", 1, 2), ("cross", 1, 2)),
    ]
    convert(model, "dagpam", **ZERO)
    assert_close(model(**inputs).logits, want, rtol=1e-4, atol=1e-5)
    assert torch.equal(model.generate(inputs["input_ids"], **generate), written)


def test_what_is_not_transformers_own_is_left_and_said(hf):
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    class Mine(GPT2Attention):
        pass

    model = built(gpt2, hf)
    model.transformer.h[1].attn.__class__ = Mine
    for parameter in (quantised := model.transformer.h[2].attn).parameters():
        parameter.requires_grad_(False).data = parameter.data.to(torch.uint8)
    done = convert(model, "dagpam")
    assert list(done.replaced) == ["transformer.h.0.attn"] and quantised is model.transformer.h[2].attn
    assert (
        done.left["transformer.h.1.attn"]
        == "Mine is a class that did not come with transformers: its ways are not known"
    )
    assert "as if quantised" in done.left["transformer.h.2.attn"]


def test_two_models_of_one_configuration_go_back(hf):
    one, other = built(gpt2, hf), built(gpt2, hf)
    other.config = other.transformer.config = one.config
    for model in (other, one):
        convert(model, "dagpam")
    assert set(convert(one, "softmax").replaced.values()) == {"transformers' sdpa attention"}
    assert one.config._attn_implementation == "sdpa"


def test_models_that_pad_their_heads_are_left(hf):
    sizes = {"hidden_size": 36, "intermediate_size": 32, "vocab_size": 40, "pad_head_dim_to_multiple_of": 8}
    sizes |= {f"{side}_num_hidden_layers": 1 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_num_attention_heads": 4 for side in ("encoder", "decoder")}
    with pytest.raises(UsageError, match="its heads are padded to another width than it says"):
        convert(hf.MoonshineForConditionalGeneration(hf.MoonshineConfig(**sizes)), "dagpam")


def test_a_class_whose_source_nobody_can_read_is_converted_too(hf):
    """As one that is written in a notebook: transformers would keep its own attention, with no more than a warning."""
    mine = type("Mine", (hf.GPT2LMHeadModel,), {"__module__": "of_a_notebook"})
    model, inputs = built(lambda _: mine(gpt2(hf).config), hf), given(gpt2)
    before = model(**inputs).logits
    convert(model, "dagpam", lambda_pos=3.0, lambda_neg=3.0)
    assert (model(**inputs).logits - before).abs().max() > 1e-3
    convert(model, "softmax")
    assert_close(model(**inputs).logits, before)


def test_models_without_sdpa_are_left(hf):
    """They read masks that are always there, where the interface has none for what is causal."""
    config = hf.SplinterConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = hf.SplinterModel(config)
    assert not model._supports_sdpa
    with pytest.raises(UsageError, match="transformers knows no sdpa for its model, whose masks are others"):
        convert(model, "dagpam")
    assert model.config._attn_implementation != "gpam"


def test_mixed_precision_of_rotated_queries(hf):
    """Under autocast they and the keys are float32, and values are not."""
    model, ids = llama(hf), given(llama)["input_ids"]
    convert(model, "dagpam", lambda_pos=0.5, lambda_neg=0.5)
    whole = model(ids).logits
    with torch.autocast("cpu", torch.bfloat16):
        low = model(input_ids=ids, labels=ids, use_cache=False)
    low.loss.backward()
    assert (low.logits.float() - whole).norm() < 0.05 * whole.norm()


def test_attention_to_an_image_is_cross_attention(hf):
    sizes = SIZES | {"vocab_size": 40, "encoder_hidden_size": 16, "cross_attention_frequency": 1}
    model = hf.Blip2QFormerModel(hf.Blip2QFormerConfig(**sizes)).eval()
    done = convert(model, "shaped")
    assert all("crossattention" not in path or name == "Softmax" for path, name in done.replaced.items()), done
    assert any("crossattention" in path for path in done.replaced)


def test_grouped_queries_against_the_formula(hf):
    """One layer's attention of a Llama by hand, in float64: projections, rotation, both softmaxes, output."""
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model = built(llama, hf).double()
    convert(model, "dagpam", lambda_pos=0.3, lambda_neg=0.8)
    attention = model.model.layers[0].self_attn
    x = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    cos, sin = model.model.rotary_emb(x, torch.arange(5)[None].expand(2, -1))
    q, k, v = (
        map_(x).unflatten(-1, (-1, 8)).transpose(1, 2)
        for map_ in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    q, k = apply_rotary_pos_emb(q, k, cos, sin)
    k, v = (torch.stack([part[:, head // 2] for head in range(4)], dim=1) for part in (k, v))
    future = torch.ones(5, 5).triu(1).bool()

    def softmax(query):
        return torch.softmax((query @ k.mT / 8**0.5).masked_fill(future, float("-inf")), -1)

    weights = 1.3 * softmax(q) - 0.8 * softmax(torch.relu(q) @ attention.gpam.query_neg)
    want = attention.o_proj((weights @ v).transpose(1, 2).flatten(2))
    got, _ = attention(x, position_embeddings=(cos, sin), attention_mask=None)
    assert_close(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["neutreno", "gfsa", "differential", "nap", "sigmoid", "shaped"])
def test_other_mechanisms_in_gpt2(name, hf):
    model, inputs = built(gpt2, hf), given(gpt2)
    before = model(**inputs).logits
    convert(model, name)
    begins_as_softmax = torch.allclose(model(**inputs).logits, before, rtol=1e-3)
    assert begins_as_softmax == (name == "gfsa")
    model.train()
    loss = model(**inputs, labels=inputs["input_ids"]).loss
    loss.backward()
    own = [parameter for path, parameter in model.named_parameters() if ".gpam." in path]
    assert loss.isfinite() and all(parameter.grad.isfinite().all() for parameter in own)
    assert copy.deepcopy(model).state_dict().keys() == model.state_dict().keys()


def test_dropout_is_the_models_and_the_refusals_are_sentences(hf):
    model, inputs = built(gpt2, hf), given(gpt2)
    with pytest.raises(UsageError, match="a map of the block's input, which transformers' attention interface does"):
        convert(model, "gated")
    with pytest.raises(UsageError, match="behind the block"):
        convert(model, "contranorm")
    convert(model, "dagpam")
    assert not torch.equal(model.train()(**inputs).logits, model(**inputs).logits)
    assert model.transformer.h[0].attn.gpam.site.dropout == model.config.attn_pdrop == 0.1
    assert torch.equal(model.eval()(**inputs).logits, model(**inputs).logits)


@pytest.mark.parametrize("name", ["nap", "non"])
@pytest.mark.parametrize("asked", [False, True])
def test_by_transformers_interface_heads_are_joined_as_the_mechanism_does_it_and_weights_given(name, asked):
    module = nn.Module()
    module.gpam, module.is_causal = build(name, Site(16, 2)).eval(), False
    q, k, v = (torch.randn(2, 2, 5, 8) for _ in range(3))
    got, weights = attention(module, q, k, v, None, output_attentions=asked)
    assert_close(got.flatten(2), module.gpam.after_heads(merge_heads(module.gpam(q, k, v)[0])))
    assert (weights is not None) == asked


def test_a_targets_own_key_that_cannot_be_told_is_refused(monkeypatch):
    module = nn.Module()
    q, k = torch.randn(2, 2, 3, 8), torch.randn(2, 2, 5, 8)
    module.gpam, module.is_causal = build("shaped", Site(16, 2)).eval(), False
    with pytest.raises(UsageError, match="'shaped' stands in self attention alone: got 3 queries for 5 keys"):
        attention(module, q, k, k, None)
    module.gpam, seen = build("shaped", Site(16, 2, "decoder")).eval(), torch.ones(1, 1, 3, 5, dtype=torch.bool)
    attention(module, q, k, k, seen)
    monkeypatch.setattr("gpam.nn.hugging_face.runs_as_called", lambda: False)
    with pytest.raises(UsageError, match="generate with disable_compile=True"):
        attention(module, q, k, k, seen)


def test_a_transformers_models_own_scale_and_bias_are_kept():
    module = nn.Module()
    module.gpam, module.is_causal = build("softmax", Site(16, 2)).double().eval(), False
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 5, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(1, 2, 5, 5, generator=generator, dtype=torch.float64)
    got, _ = attention(module, q, k, v, None, scaling=0.1, position_bias=bias)
    assert_close(got, (torch.softmax(0.1 * q @ k.mT + bias, -1) @ v).transpose(1, 2))
    seen = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    seen[1, ..., 3:] = False
    hidden = torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, torch.finfo(torch.float64).min)
    for mask in (seen, hidden):
        got, _ = attention(module, q, k, v, mask, scaling=0.1, position_bias=bias)
        assert_close(got, (torch.softmax(0.1 * q @ k.mT + bias + hidden, -1) @ v).transpose(1, 2))
    for unknown in ("softcap", "s_aux"):
        with pytest.raises(UsageError, match=f"attention with '{unknown}' is not supported"):
            attention(module, q, k, v, None, **{unknown: 30.0})
