"""The FLOP formula against torch's own counter, which counts the matrix products that really run."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gpam.attention import functional
from gpam_suite.benchmark.models import CASES, batch, build, loss_of
from gpam_suite.run.counts import train_flops_per_token


@pytest.mark.parametrize("case", [CASES["lm_laptop"], CASES["nmt_laptop"]], ids=lambda case: case.name)
@pytest.mark.parametrize("attention", ["softmax", "dagpam"])
def test_forward_flops_are_what_torch_counts(case, attention, monkeypatch):
    """With the plain formula as the backend: it multiplies whole matrices, as the formula counts them."""
    monkeypatch.setattr(functional, "choose_backend", lambda **_: "reference")
    model = build(case, attention, seed=1)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        loss_of(case, model, batch(case, seed=1))
    by_formula = train_flops_per_token(model, case.length, case.length) / 3 * case.tokens
    assert counter.get_total_flops() == pytest.approx(by_formula, rel=1e-3)
