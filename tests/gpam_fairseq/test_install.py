"""Which attention a model really has, what it adds, and what it leaves alone."""

import dataclasses

from gpam_fairseq.config import attention_fields
from gpam_fairseq.install import attention_classes, check_attention, install_attention

import pytest
import torch
import toy
from fairseq import checkpoint_utils
from torch.testing import assert_close

from gpam.attention import functional, registry
from gpam.attention.options import option
from gpam.errors import UsageError

NMT = ["--arch", "gpam_nmt", *toy.sizes("encoder", "decoder")]
LM = ["--arch", "gpam_lm", "--task", "language_modeling", *toy.sizes("decoder")]
DAGPAM = ["--attention", "dagpam", "--lambda-pos", 0.4, "--lambda-neg", 0.7]


def run(model, words, lengths=(6, 6, 6)):
    source = toy.padded_batch(words, lengths)
    previous = toy.padded_batch(words, [5] * len(lengths), seed=1)
    return model(source, source.ne(words.pad()).sum(1), previous)[0]


@pytest.mark.parametrize("lengths", [(6, 6, 6), (6, 3, 5)], ids=["no padding", "padding"])
def test_a_loaded_checkpoint_runs_the_mechanism(dagpam_checkpoint, lengths):
    """fairseq 0.12.2's encoder layer, loaded and in evaluation, would run a softmax of its own instead."""
    (model,), config, task = checkpoint_utils.load_model_ensemble_and_task([str(dagpam_checkpoint)])
    words = task.source_dictionary
    calls = []
    for path, mechanism in toy.mechanisms(model):
        mechanism.register_forward_hook(lambda *_, path=path: calls.append(path))
    with torch.no_grad():
        evaluated = run(model.eval(), words, lengths)
        assert len(calls) == len(set(calls)) == 6  # encoder, decoder and cross attention of two layers, once each
        # The same weights under softmax are another model.
        softmax = toy.build(*NMT, "--share-decoder-input-output-embed", source=words, target=task.target_dictionary)
        softmax.load_state_dict(toy.shared(model.state_dict()))
        assert (run(softmax.eval(), words, lengths) - evaluated).abs().max() > 0.1
        # Evaluation computes what training does, without its dropout.
        model.train()
        for module in model.modules():
            if hasattr(module, "p"):
                module.p = 0.0
        assert_close(run(model, words, lengths), evaluated, rtol=1e-4, atol=1e-4)
    assert len(calls) == 12 and calls[:6] == calls[6:]
    options = {"lambda_pos": 0.4, "lambda_neg": 0.7, "lambdas": "trainable_per_head"}
    check_attention(model, "dagpam", options)
    assert set(attention_classes(model).values()) == {"DaGPAM"}
    assert config.model.attention == "dagpam"
    with pytest.raises(UsageError, match=r"but .* is DaGPAM with .*; the run does not start"):
        check_attention(model, "dagpam", options | {"lambda_neg": 0.5})


def test_classes_are_what_stands_in_the_model():
    assert attention_classes(toy.build(*NMT, *DAGPAM)) == {
        f"{stack}.layers.{layer}.{name}": "DaGPAM"
        for layer in (0, 1)
        for stack, name in (("encoder", "self_attn"), ("decoder", "self_attn"), ("decoder", "encoder_attn"))
    }
    selective = attention_classes(toy.build(*NMT, *DAGPAM, "--negative-in", "self"))
    assert {path for path, name in selective.items() if name == "Softmax"} == {
        f"decoder.layers.{layer}.encoder_attn" for layer in (0, 1)
    }
    stock = toy.build("--arch", "transformer", *toy.sizes("encoder", "decoder"))
    assert set(attention_classes(stock).values()) == {"MultiheadAttention"}


@pytest.mark.parametrize("arch, name", [("transformer", "MultiheadAttention"), ("gpam_nmt", "Softmax")])
def test_a_model_of_another_attention_is_refused(arch, name):
    model = toy.build("--arch", arch, *toy.sizes("encoder", "decoder"))
    with pytest.raises(UsageError, match=f"attention 'dagpam' .* encoder.layers.0.self_attn is {name}"):
        check_attention(model, "dagpam", {})


def test_a_mechanism_that_stands_nowhere_is_refused():
    """A language model has no cross attention: it would be softmax, recorded as daGPAM."""
    options = {"negative_in": "cross"}
    model = toy.build(*LM, "--attention", "dagpam", "--negative-in", "cross")
    with pytest.raises(UsageError, match="has a place for it nowhere and would be a model of softmax"):
        check_attention(model, "dagpam", options)


def test_one_module_of_another_attention_is_refused():
    """As after loading a checkpoint into a model that was put together by hand."""
    model, softmax = toy.build(*NMT, *DAGPAM), toy.build(*NMT)
    options = {"lambda_pos": 0.4, "lambda_neg": 0.7}
    check_attention(model, "dagpam", options)
    model.decoder.layers[1].encoder_attn = softmax.decoder.layers[1].encoder_attn
    with pytest.raises(UsageError, match=r"decoder\.layers\.1\.encoder_attn is Softmax"):
        check_attention(model, "dagpam", options)


@pytest.mark.parametrize("arguments", [NMT, LM], ids=["nmt", "lm"])
def test_one_seed_is_one_start_whatever_the_attention(arguments):
    """Also with an own parameter that is drawn: the draw leaves the rest of the model alone."""
    softmax = dict(toy.build(*arguments).named_parameters())
    dagpam = dict(toy.build(*arguments, *DAGPAM, "--query-neg-init", "xavier").named_parameters())
    other_seed = dict(toy.build(*arguments, seed=2).named_parameters())
    assert all(torch.equal(parameter, dagpam[name]) for name, parameter in softmax.items())
    own = dagpam.keys() - softmax.keys()
    assert own
    assert all(name.endswith(".mechanism.query_neg") for name in own)
    assert len({dagpam[name].sum().item() for name in own}) == len(own)
    assert not torch.equal(softmax["decoder.embed_tokens.weight"], other_seed["decoder.embed_tokens.weight"])


ADAPTIVE = ["--criterion", "adaptive_loss", "--adaptive-input", "--tie-adaptive-weights"]
ADAPTIVE += ["--adaptive-input-cutoff", "8", "--adaptive-softmax-cutoff", "8", "--decoder-input-dim", "32"]


@pytest.mark.parametrize("arguments", [NMT, [*LM, *ADAPTIVE]], ids=["sinusoidal", "adaptive"])
def test_no_state_holds_uninitialised_memory(arguments, monkeypatch):
    """fairseq makes these buffers by ``torch.FloatTensor(1)``: what the memory happened to hold, NaN at times."""
    monkeypatch.setattr(torch, "FloatTensor", lambda size: torch.full((size,), float("nan")))
    model = toy.build(*arguments)
    state = model.state_dict()
    buffers = {name for name in state if name.endswith("_float_tensor")}
    assert buffers
    assert all(value.isfinite().all() for value in state.values())
    model.load_state_dict(state | {name: torch.tensor([float("nan")]) for name in buffers})
    assert all(value.isfinite().all() for value in model.state_dict().values())


@pytest.mark.parametrize("attention", ["softmax", "dagpam", "differential", "differential_v2", "attnscale"])
def test_the_backend_is_a_choice_of_the_configuration(attention, monkeypatch):
    words, tiled, calls = toy.dictionary(), functional._RUN["tiled"], []
    monkeypatch.setitem(functional._RUN, "tiled", lambda problem: calls.append(1) or tiled(problem))

    def output(backend):
        model = toy.build(*NMT, "--attention", attention, "--attention-backend", backend, source=words).eval()
        with torch.no_grad():
            return run(model, words, (6, 3, 5))

    by_shape = output("auto")
    assert not calls  # rows this short are not tiled by themselves
    assert_close(output("tiled"), by_shape, rtol=1e-4, atol=1e-4)
    assert calls


def test_an_unknown_backend_is_refused():
    with pytest.raises(UsageError, match=r"backend must be auto or one of .*, got 'tild'; did you mean 'tiled'\?"):
        toy.build(*NMT, "--attention-backend", "tild", source=toy.dictionary())


def test_a_model_without_attention_to_replace_is_refused():
    with pytest.raises(UsageError, match="Linear has no attention module of stock fairseq to replace by 'dagpam'"):
        install_attention(torch.nn.Linear(2, 2), "dagpam", {})
    with pytest.raises(UsageError, match="has no attention module of stock fairseq"):
        install_attention(toy.build(*LM), "dagpam", {})
    with pytest.raises(UsageError, match="says attention 'softmax', but Linear has no attention"):
        check_attention(torch.nn.Linear(2, 2), "softmax", {})


def test_an_option_of_a_mechanism_does_not_replace_one_of_fairseqs(monkeypatch):
    options = dataclasses.make_dataclass("Options", [("dropout", float, option(0.0, "its own"))], frozen=True)
    monkeypatch.setitem(registry._MECHANISMS, "mine", type("Mine", (registry.Mechanism,), {"Options": options}))
    with pytest.raises(ValueError, match="attention 'mine': its option 'dropout' is one of fairseq's own"):
        attention_fields()
