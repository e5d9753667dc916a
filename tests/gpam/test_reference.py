"""``gpam.attention.reference`` against formulas written apart from it, and its gradients against finite differences."""

import independent_formulas as independent
import pytest
import torch
from mechanism_cases import (
    ONE_DIRECTION,
    PADDING,
    Called,
    every_case,
    independent_call,
    inputs,
    reference_call,
    stands_across,
)
from torch.testing import assert_close

from gpam.attention import reference


@every_case
@pytest.mark.parametrize("setting", ["plain", "causal", "padded", "causal_padded", "cross"])
def test_reference_equals_independent_formula(case, setting):
    called = Called(case)
    if setting == "cross" and not stands_across(called.name):
        pytest.skip("keeps softmax in cross attention")
    given = inputs(target=2, source=5) if setting == "cross" else inputs()
    padding = PADDING if "padded" in setting else None
    causal = setting.startswith("causal")
    mask = None if padding is None else torch.tensor(padding)
    with torch.no_grad():
        got = reference_call(called, given, key_padding_mask=mask, causal=causal)
    if got is None:
        pytest.skip("no such formula: the module is compared in test_mechanisms")
    wanted = independent_call(called, given, padding, causal)
    assert_close(got[0], wanted[0], rtol=1e-10, atol=1e-12)
    assert_close(got[1], wanted[1], rtol=1e-10, atol=1e-12)


@every_case
def test_gradcheck(case):
    called = Called(case)
    given = inputs(target=3, batch=2).map(lambda tensor: tensor.requires_grad_())
    parameters = list(called.mechanism.parameters())

    mask = torch.tensor([[False, False, True], [False] * 3])
    if reference_call(called, given) is None:
        pytest.skip("no such formula: the module is compared in test_mechanisms")

    def formula(*tensors):
        output, weights = reference_call(called, given, key_padding_mask=mask, causal=True)
        return output, weights

    # NAP has no derivative at a row of one key, whose deviation is at its minimum; its rows here see two or more.
    if called.name == "nap":
        wrt = (given.q, given.k, given.v, *parameters)
        assert torch.autograd.gradcheck(
            lambda *_: reference_call(called, given, key_padding_mask=mask), wrt, **ONE_DIRECTION
        )
    else:
        wrt = (*given.tensors().values(), *parameters)
        assert torch.autograd.gradcheck(formula, wrt, **ONE_DIRECTION)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("causal", [False, True])
def test_contranorm_after_block(similarity, causal):
    x = inputs().x
    see = independent.who_sees_what(3, 5, 5, PADDING, causal)
    got, _ = reference.contranorm_after_block(
        x, 0.3, 1.5, similarity, key_padding_mask=torch.tensor(PADDING), causal=causal
    )
    wanted = independent.contranorm_after_block(x.numpy(), see, 0.3, 1.5, similarity == "cosine")
    assert_close(got, torch.from_numpy(wanted), rtol=1e-10, atol=1e-12)
    x = inputs(target=3, batch=1).x.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda x: reference.contranorm_after_block(x, 0.3, 1.5, similarity, causal=causal)[0], (x,), **ONE_DIRECTION
    )


def test_defaults_are_the_initial_values():
    """With no parameters given, the formulas that start as softmax are softmax."""
    given = inputs()
    plain, weights = reference.softmax(given.q, given.k, given.v, causal=True)
    for name in ("attnscale", "gfsa", "neutreno", "contranorm"):
        output, other = getattr(reference, name)(given.q, given.k, given.v, causal=True)
        assert_close(output, plain)
        assert_close(other, weights)


def test_causal_targets_are_the_last_positions():
    given = inputs(target=5)
    every, _ = reference.softmax(given.q, given.k, given.v, causal=True)
    last, _ = reference.softmax(given.q[:, :, -2:], given.k, given.v, causal=True)
    assert_close(last, every[:, :, -2:])
    with pytest.raises(ValueError, match="5 targets for 2 sources"):
        reference.softmax(given.q, given.k[:, :, :2], given.v[:, :, :2], causal=True)
