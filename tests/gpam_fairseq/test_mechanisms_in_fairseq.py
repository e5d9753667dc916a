"""Every mechanism inside fairseq's transformers: it learns, and decoding step by step is decoding at once."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import gpam_fairseq.compat  # noqa: F401  (before fairseq)

import pytest
import torch
import torch.nn.functional as F
import toy
from omegaconf import OmegaConf
from torch.testing import assert_close

# isort: split
from gpam_fairseq.config import GPAMLanguageModelConfig, GPAMTranslationConfig
from gpam_fairseq.install import attention_classes, check_attention
from gpam_fairseq.models import GPAMLanguageModel, GPAMTranslationModel

from gpam.attention import Site, build, mechanism_class, names, options_of
from gpam.errors import UsageError

LAYERS, BATCH, SOURCE, TARGET = 3, 3, 6, 7
REORDERED = {3: [1, 0, 2], 4: [1, 1, 2], 6: [0, 2]}
every_mechanism = pytest.mark.parametrize("attention", names())
both_norms = pytest.mark.parametrize("pre_norm", [False, True], ids=["post-LN", "pre-LN"])
#: A mechanism does not see where the layer norms stand, but contranorm, which acts behind the block.
with_norms = pytest.mark.parametrize(
    "attention, pre_norm", [*((name, True) for name in names()), ("contranorm", False)]
)
both_models = pytest.mark.parametrize("kind", ["lm", "nmt"])


def tiny_model(kind, attention, pre_norm=True, **settings):
    """A model of 16 dimensions and 4 heads, without dropout."""
    torch.manual_seed(0)
    words = toy.dictionary()
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    config = OmegaConf.structured(GPAMLanguageModelConfig if kind == "lm" else GPAMTranslationConfig)
    given = {"attention": attention, "dropout": 0.0, "max_target_positions": 32}
    # What would come from the task and the trainer.
    given |= {"add_bos_token": False, "tokens_per_sample": 32, "tpu": False} if kind == "lm" else {}
    sizes = {"embed_dim": 16, "ffn_embed_dim": 32, "layers": LAYERS, "attention_heads": 4, "normalize_before": pre_norm}
    for stack in ("decoder",) if kind == "lm" else ("encoder", "decoder"):
        given |= {f"{stack}_{name}": value for name, value in sizes.items()}
    for name, value in (given | settings).items():
        config[name] = value
    return (GPAMLanguageModel if kind == "lm" else GPAMTranslationModel).build_model(config, task)


def batch():
    words = toy.dictionary()
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(words.nspecial, len(words), (BATCH, SOURCE), generator=generator)
    source[0, :2] = words.pad()
    target = torch.randint(words.nspecial, len(words), (BATCH, TARGET + 1), generator=generator)
    return source, source.ne(words.pad()).sum(1), target[:, :-1], target[:, 1:]


def logits(model, kind):
    source, lengths, previous, _ = batch()
    return model(previous)[0] if kind == "lm" else model(source, lengths, previous)[0]


@with_norms
@both_models
def test_a_dozen_updates_lower_the_loss(attention, kind, pre_norm):
    model = tiny_model(kind, attention, pre_norm)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    wanted, losses = batch()[-1], []
    for _ in range(13):
        loss = F.cross_entropy(logits(model, kind).flatten(0, 1), wanted.flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        own = [p for name, p in model.named_parameters() if ".mechanism." in name]
        assert all(p.grad is not None and p.grad.isfinite().all() for p in own)
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]
    check_attention(model, attention, {})


@with_norms
@both_models
def test_step_by_step_equals_all_at_once(attention, kind, pre_norm):
    """No step sees what comes later; also after beam search put a sentence's hypotheses in another order, and after
    it finished one.

    Two hypotheses of one sentence and one of another; fairseq leaves cross attention's keys where they are as long
    as no sentence is finished, since hypotheses of one sentence share them.
    """
    model = tiny_model(kind, attention, pre_norm).double().eval()
    # Away from the start, where some mechanisms are still softmax.
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".mechanism." in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    source, lengths, previous, _ = batch()
    source, lengths = source[[0, 0, 1]], lengths[[0, 0, 1]]
    state, row = {}, torch.arange(BATCH)
    with torch.no_grad():
        encoded = {} if kind == "lm" else {"encoder_out": model.encoder(source, lengths)}
        whole, _ = model.decoder(previous, **encoded)
        for step in range(TARGET):
            if step in REORDERED:
                order = torch.tensor(REORDERED[step])
                row = row[order]
                model.decoder.reorder_incremental_state_scripting(state, order)
                encoded = {name: model.encoder.reorder_encoder_out(out, order) for name, out in encoded.items()}
            part, _ = model.decoder(previous[row, : step + 1], incremental_state=state, **encoded)
            assert_close(part[:, 0], whole[row, step], rtol=1e-9, atol=1e-11)


@with_norms
def test_padding_of_the_source_changes_nothing(attention, pre_norm):
    model = tiny_model("nmt", attention, pre_norm).double().eval()
    source, lengths, previous, _ = batch()
    pad = toy.dictionary().pad()
    wider = torch.cat([torch.full((BATCH, 3), pad), source], dim=1)
    with torch.no_grad():
        assert_close(model(wider, lengths, previous)[0], model(source, lengths, previous)[0], rtol=1e-9, atol=1e-11)


@every_mechanism
def test_saved_and_copied_models_are_the_same_model(attention):
    """A copy after a training pass, as fairseq's average of the weights makes, and a checkpoint of it."""
    model, fresh = tiny_model("nmt", attention), tiny_model("nmt", attention)
    logits(model, "nmt").sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    copied = copy.deepcopy(model)
    fresh.load_state_dict(model.state_dict())
    for other in (copied, fresh):
        assert_close(logits(other, "nmt"), logits(model, "nmt"), rtol=0, atol=0)


@every_mechanism
def test_cross_attention_is_what_the_facts_say(attention):
    model = tiny_model("nmt", attention)
    classes = attention_classes(model)
    own = mechanism_class(attention).__name__
    across = {name for path, name in classes.items() if "encoder_attn" in path and ".1." in path}
    assert across == ({own} if mechanism_class(attention).facts.cross else {"Softmax"})
    assert {name for path, name in classes.items() if "self_attn" in path and ".1." in path} == {own}
    predicted = 0
    for module in model.modules():
        if hasattr(module, "mechanism") and type(module.mechanism).__name__ == own:
            mechanism = module.mechanism
            predicted += mechanism.facts.extra_parameters(mechanism.site, options_of(attention))
    extra = sum(p.numel() for p in model.parameters()) - sum(
        p.numel() for p in tiny_model("nmt", "softmax").parameters()
    )
    assert extra == predicted


@both_norms
def test_contranorm_stands_before_the_right_layer_norm(pre_norm):
    model = tiny_model("nmt", "contranorm", pre_norm)
    hooked = {name for name, module in model.named_modules() if module._forward_pre_hooks}
    encoder, decoder = ("final_layer_norm", "encoder_attn_layer_norm") if pre_norm else ("self_attn_layer_norm",) * 2
    wanted = {
        f"{stack}.layers.{i}.{norm}"
        for stack, norm in (("encoder", encoder), ("decoder", decoder))
        for i in range(LAYERS)
    }
    assert hooked == wanted
    model.eval()
    softmax = tiny_model("nmt", "softmax", pre_norm).eval()
    softmax.load_state_dict(model.state_dict())
    assert (logits(softmax, "nmt") - logits(model, "nmt")).abs().max() > 1e-4
    still = tiny_model("nmt", "contranorm", pre_norm, contranorm_scale=0.0).eval()
    assert_close(logits(softmax, "nmt"), logits(still, "nmt"))


def test_contranorm_layer_is_the_formula():
    """One post-LN encoder layer, taken apart: LayerNorm of the residual sum with its neighbours taken away."""
    model = tiny_model("nmt", "contranorm", False, contranorm_scale=0.5).double().eval()
    layer = model.encoder.layers[0]
    x = torch.randn(SOURCE, BATCH, 16, dtype=torch.float64)
    padding = batch()[0].eq(toy.dictionary().pad())
    with torch.no_grad():
        total = x + layer.self_attn(x, x, x, key_padding_mask=padding)[0]
        alone = build("contranorm", Site(16, 4), {"contranorm_scale": 0.5})
        apart = alone.after_block(total.transpose(0, 1), key_padding_mask=padding)
        normed = F.layer_norm(
            apart.transpose(0, 1), (16,), layer.self_attn_layer_norm.weight, layer.self_attn_layer_norm.bias
        )
        wanted = layer.final_layer_norm(normed + layer.fc2(F.relu(layer.fc1(normed))))
        assert_close(layer(x, padding), wanted)


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_neutreno_refuses_layerdrop(kind):
    with pytest.raises(UsageError, match=r"hands values from layer to layer: got layerdrop 0\.2, wanted 0"):
        tiny_model("nmt", "neutreno", **{f"{kind}_layerdrop": 0.2})
    tiny_model("nmt", "dagpam", **{f"{kind}_layerdrop": 0.2})


@pytest.mark.parametrize("kind", ["lm", "nmt"])
def test_neutreno_refuses_layers_that_are_computed_twice(kind):
    """In the backward pass a layer would find the values of another layer's pass, or none."""
    with pytest.raises(UsageError, match="got checkpoint_activations, wanted it off"):
        tiny_model(kind, "neutreno", checkpoint_activations=True)
    logits(tiny_model(kind, "dagpam", checkpoint_activations=True), kind).sum().backward()


@every_mechanism
def test_dropout_that_is_retained_reaches_the_weights(attention):
    for modules, dropped in ((None, True), (["MultiheadAttention"], True), (["Elsewhere"], False)):
        model = tiny_model("lm", attention, attention_dropout=0.5).eval()
        with torch.no_grad():
            assert torch.equal(logits(model, "lm"), logits(model, "lm"))
            model.make_generation_fast_(retain_dropout=True, retain_dropout_modules=modules)
            assert torch.equal(logits(model, "lm"), logits(model, "lm")) != dropped


def test_neutreno_stacks_are_apart_and_left_empty():
    model = tiny_model("nmt", "neutreno")
    logits(model, "nmt")
    stacks = [m.mechanism.stack for m in model.modules() if hasattr(m, "mechanism")]
    assert len({id(stack) for stack in stacks}) == 3
    assert not any(stack.tensors for stack in stacks)


def test_on_another_device_the_same_numbers_and_no_waiting():
    """As on a GPU, where a tensor of the CPU's in the middle ends the training, and a number read slows it down."""
    needed = "_setup_privateuseone_for_python_backend"
    if not hasattr(torch.utils.backend_registration, needed):
        pytest.skip(f"torch {torch.__version__} has no {needed}")
    script = Path(__file__).with_name("second_device.py")
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert list(found) == list(names())
    for attention, own in found.items():
        assert own["loss"] < 1e-9 and own["gradients"] < 1e-9, attention
        assert own["waited"] == found["softmax"]["waited"], attention
