"""What ends a training that is wrong: attention that breaks its invariants, numbers that are none, another model."""

import contextlib
from types import SimpleNamespace

from gpam_fairseq.trainer import invariants
from gpam_fairseq.trainer.divergence import Diverged
from gpam_fairseq.trainer.invariants import Violated, complaint

import pytest
import torch
from runs import tiny, train_here
from soak.bits import parameters_of

from gpam.attention import Site, build, names
from gpam.attention.mechanisms.dagpam import DaGPAM
from gpam.errors import UsageError
from gpam_suite.records.lines import read_history
from gpam_suite.run.outcomes import CHECK_EVERY


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tmp_path_factory.mktemp("watched")


def trained(base, *overrides):
    """The folder of a run that was trained in this process."""
    return train_here(tiny(base, "model=dagpam_trainable", *overrides))


def tensors(targets=40, sources=40, dtype=torch.float32):
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, length, 8, dtype=dtype) for length in (targets, sources, sources))
    return {"q": q, "k": k, "v": v, "query_input": torch.randn(3, targets, 16, dtype=dtype)}


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [0, 2])
def test_no_mechanism_is_complained_about(name, causal, padded):
    mechanism = build(name, Site(16, 2, role="decoder", layer=1, layers=3, dropout=0.1), {}).train()
    given = tensors()
    mask = torch.zeros(3, 40, dtype=torch.bool)
    mask[0, -7:] = mask[1, -padded or 40 :] = mask[2, -9:] = True
    state = torch.get_rng_state()
    assert complaint(mechanism, **given, key_padding_mask=mask, causal=causal) is None
    assert complaint(mechanism, **given, causal=causal) is None
    assert mechanism.training
    assert torch.equal(state, torch.get_rng_state()), "a random number was drawn"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_rounded_rows_of_unbounded_weights_are_not_complained_about(dtype, gain):
    """Their sums are rounded as their weights are; a sum that is wrong is still named."""
    mechanism = build("nap", Site(16, 2, role="cross"), {}).to(dtype)
    torch.nn.init.constant_(mechanism.gain, gain)
    given = tensors(sources=300, dtype=dtype)
    assert complaint(mechanism, **given) is None
    mechanism.row_sum = lambda: 30.0
    assert "a row's sum is off by" in complaint(mechanism, **given)


def test_the_longest_sentence_is_looked_at(monkeypatch):
    mechanism, given, seen, right = build("dagpam", Site(16, 2), {}), tensors(), [], DaGPAM.weights
    monkeypatch.setattr(DaGPAM, "weights", lambda self, q, k, **masks: seen.append(q) or right(self, q, k, **masks))
    mask = torch.zeros(3, 40, dtype=torch.bool)
    mask[0, -9:] = mask[2, -20:] = True
    complaint(mechanism, **given, key_padding_mask=mask)
    assert torch.equal(seen[0], given["q"][1:2, :, :32])


def test_each_broken_invariant_is_named(monkeypatch):
    mechanism, given = build("dagpam", Site(16, 2), {}), tensors()
    right = DaGPAM.weights

    def complaint_with(wrong):
        monkeypatch.setattr(DaGPAM, "weights", lambda *args, **kwargs: wrong(right(*args, **kwargs)))
        return complaint(mechanism, **given, causal=True)

    assert "a key that its row does not see has a weight of 0.1," in complaint_with(lambda weights: weights + 0.1)
    assert "its weights have the shape [1, 2, 32, 1], wanted [batch" in complaint_with(lambda weights: weights[..., :1])
    assert "a row's sum is off by 0.01" in complaint_with(lambda weights: weights * 1.01)
    assert "weights from -2" in complaint_with(lambda weights: weights * 8)
    assert "not a finite number" in complaint_with(lambda weights: weights * float("nan"))
    monkeypatch.undo()
    path = DaGPAM.forward
    monkeypatch.setattr(DaGPAM, "forward", lambda self, q, k, v, **masks: path(self, q, k, v.roll(1, 2), **masks))
    assert "from weights times values" in complaint(mechanism, **given, causal=True)


def test_weights_that_come_with_the_output_alone_are_looked_at(monkeypatch):
    mechanism, given = build("differential_v2", Site(16, 2), {}), tensors()
    right = type(mechanism).forward

    def broken(*args, **kwargs):
        output, weights = right(*args, **kwargs)
        return output, None if weights is None else weights * float("nan")

    monkeypatch.setattr(type(mechanism), "forward", broken)
    assert "not a finite number" in complaint(mechanism, **given, causal=True)


def test_a_violation_ends_training_naming_update_and_layer(base, monkeypatch):
    right = DaGPAM.weights

    def wrong_later(self, q, k, **masks):
        return right(self, q, k, **masks) * (1.01 if self.site.layer == 1 and self.broken else 1)

    def breaks(self, *args, **kwargs):
        self.calls = getattr(self, "calls", 0) + 1
        self.broken = self.calls > 2

    monkeypatch.setattr(DaGPAM, "weights", wrong_later)
    monkeypatch.setattr(DaGPAM, "broken", False, raising=False)
    init = DaGPAM.__init__

    def counting(self, *args):
        init(self, *args)
        self.register_forward_pre_hook(breaks)

    monkeypatch.setattr(DaGPAM, "__init__", counting)
    monkeypatch.setenv(CHECK_EVERY, "3")
    with pytest.raises(Violated, match=r"update 3: attention of decoder\.layers\.1\.self_attn \(DaGPAM\): a row's sum"):
        trained(base, "seed=2")


def test_attention_is_checked_at_the_first_update_and_then_now_and_then(monkeypatch):
    from fairseq.trainer import Trainer

    asked = []
    monkeypatch.setattr(Trainer, "train_step", lambda *_: None)
    monkeypatch.setattr(invariants, "_asking", lambda _, update: asked.append(update) or contextlib.nullcontext())
    with invariants.checked_attention(3):
        for done in range(7):
            Trainer.train_step(SimpleNamespace(get_num_updates=lambda done=done: done, get_model=lambda: None))
    assert asked == [1, 3, 6]


def test_watching_changes_no_bit_and_fairseq_is_left_as_it_was(base, monkeypatch):
    from fairseq.logging import progress_bar
    from fairseq.trainer import Trainer

    before = Trainer.__init__, progress_bar.progress_bar
    monkeypatch.setenv(CHECK_EVERY, "0")
    plain = trained(base, "seed=3", "experiment_name=plain")
    monkeypatch.setenv(CHECK_EVERY, "1")
    watched = trained(base, "seed=3", "experiment_name=watched")
    assert parameters_of(plain) == parameters_of(watched)
    assert (Trainer.__init__, progress_bar.progress_bar) == before


@pytest.mark.parametrize("where", ["output", "gradient"])
def test_the_first_number_that_is_none_is_named(base, monkeypatch, where):
    """One module's output, or one parameter's gradient, turns to NaN at the third update."""
    from fairseq.models.transformer.transformer_decoder import TransformerDecoderBase

    stock = TransformerDecoderBase.extract_features

    def poisoned(self, *args, **kwargs):
        if self.num_updates == 2 and not getattr(self, "armed", False):
            self.armed = True
            if where == "output":
                self.layers[1].fc1.register_forward_hook(lambda module, given, output: output * float("nan"))
            else:
                self.layers[0].fc2.weight.register_hook(lambda gradient: gradient * float("inf"))
        return stock(self, *args, **kwargs)

    monkeypatch.setattr(TransformerDecoderBase, "extract_features", poisoned)
    monkeypatch.setattr(TransformerDecoderBase, "num_updates", -1, raising=False)
    monkeypatch.setattr(
        TransformerDecoderBase, "set_num_updates", lambda self, n: setattr(self, "num_updates", n), False
    )
    named = {
        "output": r"update 3: the output of decoder\.layers\.1\.fc1 is not finite",
        "gradient": r"update 3: the gradient of decoder\.layers\.0\.fc2\.weight is not finite",
    }
    with pytest.raises(Diverged, match=named[where]):
        trained(base, "seed=4", f"experiment_name={where}")


def test_a_run_whose_modules_are_not_what_its_configuration_says_does_not_start(base, monkeypatch):
    from gpam_fairseq import models

    monkeypatch.setattr(models, "install_attention", lambda model, *_, **__: model)  # daGPAM asked for, softmax built
    with pytest.raises(UsageError, match=r"the configuration says attention 'dagpam'.* the run does not start"):
        trained(base, "seed=5")
    (folder,) = (base / "results").glob("runs/*/*/seed5-*")
    assert read_history(folder) == []
