"""Gradient and lambda histories: what is logged, when, and that training does not notice."""

import math
from functools import partial
from types import SimpleNamespace

import gpam_fairseq  # noqa: F401
from gpam_fairseq.attention import GPAMMultiheadAttention
from gpam_fairseq.trainer.histories import histories, measure

import pytest
import torch
from fairseq.modules import MultiheadAttention
from fairseq.trainer import Trainer

from gpam.attention import Site, build
from gpam_suite.records.history_rows import gradients_and_scalars, mean_of, of_split
from gpam_suite.records.lines import append_history, read_history


class Model(torch.nn.Module):
    def __init__(self, attention="dagpam", options=None, width=8, heads=2):
        super().__init__()
        torch.manual_seed(0)
        stock = MultiheadAttention(width, heads, self_attention=True)
        self.self_attn = GPAMMultiheadAttention(stock, build(attention, Site(width, heads), options or {}))
        self.width = width

    def step(self):
        torch.manual_seed(1)
        self.zero_grad()
        self.self_attn(torch.randn(5, 3, self.width), None, None, need_weights=False)[0].square().sum().backward()
        return self


def trainer_of(model, update, master=True, **optimizer):
    clipped = []
    return SimpleNamespace(
        get_num_updates=lambda: update - 1,
        is_data_parallel_master=master,
        is_fsdp=False,
        get_model=lambda: model,
        clipped=clipped,
        optimizer=SimpleNamespace(clip_grad_norm=lambda norm, aggregate_norm_fn: clipped.append(norm), **optimizer),
    )


def test_norms_are_those_of_the_gradients():
    model = Model(options={"lambdas": "trainable_per_head", "lambda_pos": 0.25, "lambda_neg": 0.75}).step()
    rows = measure(model)
    attention = model.self_attn
    weights = {"query": attention.q_proj.weight, "key": attention.k_proj.weight, "value": attention.v_proj.weight}
    weights["query_neg"] = attention.mechanism.query_neg
    assert set(rows["gradient"]) == {f"{name}/self_attn" for name in weights}
    for name, weight in weights.items():
        by_hand = math.sqrt(sum(float(g) ** 2 for g in weight.grad.double().flatten()))
        assert rows["gradient"][f"{name}/self_attn"] == pytest.approx(by_hand, rel=1e-5)
        assert measure(model, 0.5)["gradient"][f"{name}/self_attn"] == pytest.approx(by_hand / 2, rel=1e-5)
    assert rows["scalar"] == {
        f"lambda_{sign}/self_attn/{h}": v for sign, v in (("pos", 0.25), ("neg", 0.75)) for h in (0, 1)
    }


def test_what_is_not_there_has_no_row():
    """One learned lambda a module has no head, softmax and differential attention no scalar, a model before its
    backward pass no gradient."""
    one = measure(Model(options={"lambdas": "trainable"}).step())["scalar"]
    assert one == {"lambda_pos/self_attn": 0.5, "lambda_neg/self_attn": 0.5}
    assert set(measure(Model("softmax").step())) == {"gradient"}
    square = Model("differential", heads=4, width=16)  # whose vectors are as long as there are heads
    assert set(measure(square.step())) == {"gradient"}
    assert measure(Model("softmax")) == {}


def test_rows_at_the_first_update_and_every_fifth(tmp_path):
    model = Model().step()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    stock = Trainer.clip_grad_norm
    with histories(partial(append_history, tmp_path), 5):
        for update in range(1, 12):
            trainer = trainer_of(model, update)
            Trainer.clip_grad_norm(trainer, 0.1)
            assert trainer.clipped == [0.1]  # clipping itself goes its own way
        Trainer.clip_grad_norm(trainer_of(model, 15, master=False), 0.1)
    assert Trainer.clip_grad_norm is stock
    assert [row["update"] for row in read_history(tmp_path)] == [1, 5, 10]
    assert all(torch.equal(parameter.grad, old) for parameter, old in zip(model.parameters(), before, strict=True))


def test_half_precision_that_still_has_to_be_scaled(tmp_path):
    model = Model().step()
    with histories(partial(append_history, tmp_path), 1):
        Trainer.clip_grad_norm(trainer_of(model, 1, _multiply_factor=torch.tensor(0.25)), 0.1)
    (row,) = read_history(tmp_path)
    assert row["query/self_attn"] == pytest.approx(measure(model)["gradient"]["query/self_attn"] / 4)


def test_reading_a_history_back():
    rows = [
        {"update": 1, "split": "train", "loss_bits": 3.0},
        {"update": 1, "split": "gradient", "query/a": 1.0, "key/a": None},
        {"update": 2, "split": "gradient", "query/a": 9.0, "key/a": 4.0},
        {"update": 2, "split": "gradient", "query/a": 5.0, "key/a": 4.0},  # the run was killed and came by again
        {"update": 3, "split": "gradient", "query/a": 2.0},
        {"update": 2, "split": "scalar", "lambda_pos/a": 0.5},
        {"update": 3, "split": "scalar", "lambda_pos/a": 0.25},
    ]
    assert of_split(rows, "gradient") == {"query/a": {1: 1.0, 2: 5.0, 3: 2.0}, "key/a": {2: 4.0}}
    assert gradients_and_scalars(rows) == {
        "gradient_norms": {"query/a": 2.0, "key/a": 4.0},
        "learned_scalars": {"lambda_pos/a": 0.25},
    }
    assert mean_of({"query/a": 1.0, "query/b": 2.0, "query_neg/a": 9.0, "query/c": None}, "query") == 1.5
