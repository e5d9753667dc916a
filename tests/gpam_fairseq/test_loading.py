"""Training from a checkpoint: daGPAM from softmax's is the same model where lambda is 0; from its own all is strict."""

import logging
from types import SimpleNamespace

from gpam_fairseq.trainer.loading import _loading

import pytest
import torch
import toy
from fairseq import checkpoint_utils
from fairseq.distributed import ModuleProxyWrapper

from gpam.attention import build
from gpam.attention.site import Site

TRAINING = {
    "lr": 0.0,  # the update changes nothing, so what is saved is what training started from
    "max_update": 1,
    "max_tokens": 400,
    "share_decoder_input_output_embed": True,
}
ZERO = ["--lambda-pos", 0, "--lambda-neg", 0]


def train(data, folder, *more, **settings):
    return toy.train(data, folder, "gpam_iwslt_de_en", *more, **(TRAINING | settings))


@pytest.fixture(scope="module")
def softmax_checkpoint(parallel, tmp_path_factory):
    """Trained, so that its projections are no model's first."""
    folder = tmp_path_factory.mktemp("softmax")
    assert train(parallel, folder, "--attention", "softmax", lr=0.005, max_update=10) == 0
    return folder / "checkpoint_last.pt"


def loaded(path, data):
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], arg_overrides={"data": str(data)})
    return model.eval(), task


def output(path, data):
    model, task = loaded(path, data)
    source = toy.padded_batch(task.source_dictionary, (5, 3, 6))
    target = toy.padded_batch(task.target_dictionary, (4, 6, 2), seed=1)
    lengths = source.ne(task.source_dictionary.pad()).sum(1)
    with torch.no_grad():
        return model(source, lengths, target)[0]


@pytest.mark.parametrize("lambdas", ["fixed", "trainable_per_head"])
def test_dagpam_starts_as_the_softmax_model_and_with_new_parameters_of_its_own(
    lambdas, softmax_checkpoint, parallel, tmp_path, caplog
):
    caplog.set_level(logging.INFO)
    more = ["--attention", "dagpam", "--lambdas", lambdas, *ZERO, "--finetune-from-model", softmax_checkpoint]
    assert train(parallel, tmp_path, *more) == 0
    before = torch.load(softmax_checkpoint)["model"]
    after = torch.load(tmp_path / "checkpoint_last.pt")["model"]
    assert toy.shared(after).keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in toy.shared(after).items())
    site = Site(32, 4, "encoder", 0, 2)
    fresh = build("dagpam", site, {"lambdas": lambdas, "lambda_pos": 0.0, "lambda_neg": 0.0}).state_dict()
    new = {name: tensor for name, tensor in after.items() if ".mechanism." in name}
    assert len(new) == 6 * len(fresh) and f"{len(new)} parameters of the attention are new" in caplog.text
    assert all(torch.equal(tensor, fresh[name.rpartition(".")[2]]) for name, tensor in new.items())
    torch.testing.assert_close(
        output(tmp_path / "checkpoint_last.pt", parallel), output(softmax_checkpoint, parallel), rtol=0, atol=2e-6
    )


def test_the_second_weights_of_stock_fairseqs_encoder_are_passed_over(softmax_checkpoint, parallel, tmp_path):
    """Its layers hold copies of their weights for a fast path of PyTorch, and so do its checkpoints."""
    state = torch.load(softmax_checkpoint, weights_only=False)
    for layer in ("encoder.layers.0.", "encoder.layers.1."):
        for kind in ("weight", "bias"):
            own = [state["model"][f"{layer}self_attn.{name}_proj.{kind}"] for name in ("q", "k", "v")]
            state["model"][f"{layer}in_proj_{kind}"] = torch.cat(own)
            for name in ("fc1", "fc2"):
                state["model"][f"{layer}{name}_{kind}"] = state["model"][f"{layer}{name}.{kind}"]
            state["model"][f"{layer}out_proj_{kind}"] = state["model"][f"{layer}self_attn.out_proj.{kind}"]
    torch.save(state, stock := tmp_path / "stock.pt")
    assert torch.equal(output(stock, parallel), output(softmax_checkpoint, parallel))
    more = ["--attention", "dagpam", *ZERO, "--finetune-from-model", stock]
    assert train(parallel, tmp_path / "finetuned", *more) == 0
    after = torch.load(tmp_path / "finetuned" / "checkpoint_last.pt")["model"]
    assert not any("in_proj" in name for name in after)


def test_another_lambda_is_another_model(softmax_checkpoint, parallel, tmp_path):
    more = ["--attention", "dagpam", "--lambda-neg", 0.5, "--finetune-from-model", softmax_checkpoint]
    assert train(parallel, tmp_path, *more) == 0
    difference = output(tmp_path / "checkpoint_last.pt", parallel) - output(softmax_checkpoint, parallel)
    assert difference.abs().max() > 1e-2


def test_a_restored_training_has_to_have_every_parameter(softmax_checkpoint, parallel, tmp_path, capfd):
    capfd.readouterr()
    assert train(parallel, tmp_path, "--attention", "dagpam", "--restore-file", softmax_checkpoint) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith(f"gpam_fairseq train: {softmax_checkpoint} holds another model than these options describe")
    assert "(attention is softmax in it, dagpam here)" in said


def test_a_training_goes_on_with_the_options_of_its_mechanism(parallel, tmp_path, capfd):
    """Fixed lambdas are no parameters, whose lack fairseq would see."""
    dagpam = ["--attention", "dagpam", "--lambda-neg"]
    assert train(parallel, tmp_path, *dagpam, 0.5) == 0
    assert train(parallel, tmp_path, *dagpam, 0.5, "--lambda-pos", 0.5, max_update=2) == 0  # the default, said
    before = torch.load(tmp_path / "checkpoint_last.pt")["model"]
    capfd.readouterr()
    assert train(parallel, tmp_path, *dagpam, 0.25, max_update=3) == 2
    said = capfd.readouterr().err.splitlines()[-1]
    assert "checkpoint_last.pt holds another model" in said and "(lambda_neg is 0.5 in it, 0.25 here)" in said
    after = torch.load(tmp_path / "checkpoint_last.pt")["model"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


def test_everything_but_the_mechanism_has_to_be_in_the_other_model(softmax_checkpoint, parallel, tmp_path, capfd):
    capfd.readouterr()
    more = ["--attention", "dagpam", "--finetune-from-model", softmax_checkpoint, "--encoder-layers", 3]
    assert train(parallel, tmp_path, *more) == 2
    assert "encoder.layers.2." in capfd.readouterr().err.splitlines()[-1]


def test_with_several_processes_new_parameters_stay_too():
    """The trainer's model is wrapped then, and the wrapper loads the state into the model inside."""
    words = ["--arch", "gpam_lm", "--task", "language_modeling", *toy.sizes("decoder")]
    softmax, model = toy.build(*words), toy.build(*words, "--attention", "dagpam")
    inside = torch.nn.Module()
    inside.module = model
    wrapped = ModuleProxyWrapper(inside)
    trainer = SimpleNamespace(model=wrapped, get_model=lambda: model)
    trainer.load_checkpoint = lambda path: wrapped.load_state_dict(softmax.state_dict(), strict=True)
    load = _loading(lambda cfg, trainer: trainer.load_checkpoint("another.pt"))
    load(SimpleNamespace(finetune_from_model="another.pt"), trainer)
    assert torch.equal(model.decoder.embed_tokens.weight, softmax.decoder.embed_tokens.weight)
