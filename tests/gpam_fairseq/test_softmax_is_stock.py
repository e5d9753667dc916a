"""With softmax the plugin trains the model that fairseq trains: the same losses and parameters update for update."""

import itertools

import gpam_fairseq  # noqa: F401  (before fairseq)

import pytest
import toy
from fairseq import tasks, utils
from fairseq.trainer import Trainer
from torch.testing import assert_close

from gpam.attention import functional

UPDATES = 20
ADAM = {"optimizer": "adam", "adam_betas": "(0.9, 0.98)", "lr": 0.002, "clip_norm": 0.5, "cpu": True, "num_workers": 0}
TRAINING = {
    "lm": {"task": "language_modeling", "tokens_per_sample": 24, "max_tokens": 200, **ADAM},
    "nmt": {"criterion": "label_smoothed_cross_entropy", "label_smoothing": 0.1, "max_tokens": 150, **ADAM},
}
STOCK = {
    "lm": {"arch": "transformer_lm", "decoder_input_dim": 32, "decoder_output_dim": 32},
    "nmt": {"arch": "transformer"},
}
STACKS = {"lm": ["decoder"], "nmt": ["encoder", "decoder"]}


def train(data, kind, model, attention_dropout):
    """Losses of every update, and the parameters before the first and after the last one, by fairseq's Trainer."""
    dropout = {"dropout": 0.1, "attention_dropout": attention_dropout}
    # At the kink of relu, rounding alone turns a unit on or off.
    settings = {**TRAINING[kind], **model, **dropout, "activation_fn": "gelu"}
    cfg = toy.training_config(data, *toy.flags(settings), *toy.sizes(*STACKS[kind]))
    with utils.set_torch_seed(cfg.common.seed):
        task = tasks.setup_task(cfg.task)
        model, criterion = task.build_model(cfg.model), task.build_criterion(cfg.criterion)
    task.load_dataset("train")
    losses = []
    criterion.register_forward_hook(lambda _, __, result: losses.append(result[0].item()))
    trainer = Trainer(cfg, task, model, criterion)
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    epochs = (trainer.get_train_iterator(epoch).next_epoch_itr() for epoch in itertools.count(1))
    for sample in itertools.islice(itertools.chain.from_iterable(epochs), UPDATES):
        trainer.train_step([sample])
    assert trainer.get_num_updates() == UPDATES
    return losses, start, {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kind", ["lm", "nmt"])
@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_softmax_trains_as_stock_fairseq(kind, attention_dropout, lines, parallel, monkeypatch):
    """With attention dropout the tiles of our own kernel draw other masks than PyTorch's does: there PyTorch's kernel
    stands in for it, as on a GPU."""
    if attention_dropout:
        monkeypatch.setattr(functional, "choose_backend", lambda *_, **__: "sdpa")
    data = lines if kind == "lm" else parallel
    stock_losses, stock_start, stock_end = train(data, kind, STOCK[kind], attention_dropout)
    losses, start, end = train(data, kind, {"arch": f"gpam_{kind}", "attention": "softmax"}, attention_dropout)
    assert_close(start, stock_start, rtol=0, atol=0)
    assert_close(losses, stock_losses, rtol=2e-6, atol=0)
    assert max((end[name] - start[name]).abs().max() for name in end) > 0.01
    # A bias of the keys moves all scores of a row alike: its gradient is rounding noise, which Adam blows up.
    told = [name for name in end if not name.endswith("k_proj.bias")]
    assert len(end) > len(told) > 0.9 * len(end)
    assert_close({name: end[name] for name in told}, {name: stock_end[name] for name in told}, rtol=0, atol=5e-5)
