"""``attn_mask``, grouped keys and several targets over a prefix, for every mechanism, in float64."""

import dataclasses

import numpy as np
import pytest
import torch
from mechanism_cases import (
    HEAD_DIM,
    HEADS,
    ONE_DIRECTION,
    PADDING,
    Called,
    every_case,
    every_name,
    independent_call,
    inputs,
)
from torch.testing import assert_close

from gpam.attention import Site, build, mechanism_class, names
from gpam.attention.functional import sum_of_softmaxes
from gpam.errors import UsageError

EXACT = {"rtol": 1e-9, "atol": 1e-11}
DOT_PRODUCTS = ("softmax", "attnscale", "centered", "contranorm", "gated", "gfsa", "neutreno", "shaped", "sigmoid")
DOT_PRODUCTS += ("softmax_scaled",)
WINDOW = ~torch.ones(5, 5, dtype=torch.bool).tril().triu(-1)  # each target sees itself and the one before


@every_case
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_a_window_equals_the_independent_formula(case, kind):
    called, given, padding = Called(case), inputs(), PADDING if kind == "boolean" else None
    mask = WINDOW if kind == "boolean" else torch.zeros(5, 5, dtype=torch.float64).masked_fill(WINDOW, float("-inf"))
    masks = {"attn_mask": mask, "key_padding_mask": None if padding is None else torch.tensor(padding)}
    wanted_output, wanted_weights = independent_call(called, given, padding, hidden=WINDOW)
    with torch.no_grad():
        output, weights = called(given, need_weights=True, **masks)
        assert_close(called(given, **masks)[0], wanted_output, **EXACT)
    assert_close(output, wanted_output, **EXACT)
    assert_close(weights, wanted_weights, **EXACT)


@every_case
@pytest.mark.parametrize("low", [-1e4, -1e9])
def test_what_a_softmax_makes_nothing_of_is_hidden(case, low):
    """Also where the keys that a row sees are counted; no later target is told of."""
    called, given = Called(case), inputs()
    if not called.mechanism.takes_bias:
        pytest.skip("it refuses what adds")
    low = torch.zeros(5, 5, dtype=torch.float64).masked_fill(WINDOW, low)
    with torch.no_grad():
        assert_close(called(given, attn_mask=low)[0], called(given, attn_mask=WINDOW)[0], **EXACT)


def softmax_of(scores):
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


@pytest.mark.parametrize("name", ["softmax", "dagpam"])
@pytest.mark.parametrize("need_weights", [False, True])
def test_a_bias_is_added_to_the_scores_of_each_branch(name, need_weights):
    called, given = Called((name, {})), inputs()
    slopes = torch.tensor([2.0**-head for head in range(1, HEADS + 1)], dtype=torch.float64)
    distance = torch.arange(5)[:, None] - torch.arange(5)[None, :]
    alibi = (-slopes[:, None, None] * distance).masked_fill(distance < 0, float("-inf"))
    q, k, v = (tensor.numpy() for tensor in (given.q, given.k, given.v))
    scores = lambda query: query @ k.swapaxes(-1, -2) / HEAD_DIM**0.5 + alibi.numpy()  # noqa: E731
    wanted = softmax_of(scores(q))
    if name == "dagpam":
        mechanism = called.mechanism
        negative = np.maximum(q, 0) @ mechanism.query_neg.detach().numpy()
        wanted = (1 + mechanism.lambda_pos) * wanted - mechanism.lambda_neg * softmax_of(scores(negative))
    with torch.no_grad():
        output, weights = called.mechanism(given.q, given.k, given.v, attn_mask=alibi, need_weights=need_weights)
    assert_close(output, torch.from_numpy(wanted @ v), **EXACT)
    if need_weights:
        assert_close(weights, torch.from_numpy(wanted), **EXACT)


@pytest.mark.parametrize("name", [name for name in names() if mechanism_class(name).takes_bias])
def test_every_mechanism_adds_it(name):
    """By the formula without one: the bias ``b_ij`` is the scores' share of more coordinates of queries and keys."""
    called, given = Called((name, {})), inputs()
    bias = torch.randn(5, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    with torch.no_grad():
        output, weights = called(given, attn_mask=bias, need_weights=True)
        assert_close(called(given, attn_mask=bias)[0], output, **EXACT)
    if not _scores_are_dot_products(called, given):
        assert name not in DOT_PRODUCTS
        pytest.skip("its scores are not q . k / sqrt(d) of vectors of any width d: a test of its own is wanted")
    wanted = independent_call(called, _with_bias(given, bias))
    assert_close(output, wanted[0], **EXACT)
    assert_close(weights, wanted[1], **EXACT)


def _with_bias(given, bias):
    """More coordinates of queries and keys, whose share of ``q . k / sqrt(d)`` is ``bias``."""
    width, one_hot = HEAD_DIM + 5, torch.eye(5, dtype=torch.float64).expand(3, HEADS, 5, 5)
    return dataclasses.replace(
        given,
        q=torch.cat([given.q * (width / HEAD_DIM) ** 0.5, width**0.5 * one_hot], -1),
        k=torch.cat([given.k, bias.T.expand(3, HEADS, 5, 5)], -1),
    )


def _scores_are_dot_products(called, given):
    """Whether a bias of 0 changes nothing in the formula; with maps as wide as a head it cannot be computed."""
    try:
        found = independent_call(called, _with_bias(given, torch.zeros(5, 5, dtype=torch.float64)))
    except ValueError:
        return False
    return torch.allclose(found[0], independent_call(called, given)[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("backend", ["sdpa", "reference"])
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_inputs_and_bias(backend, causal):
    generator = torch.Generator().manual_seed(0)
    q, q_neg, k, v, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((2, 2, 3, 4), (2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), (2, 3, 5))
    )
    padding = torch.tensor([[True, False, False, False, False], [False] * 4 + [True]])

    def attend(*tensors):
        first, second, keys, values, added = tensors
        return sum_of_softmaxes(
            (first, second),
            keys,
            values,
            (1.4, -0.7),
            attn_mask=added,
            causal=causal,
            key_padding_mask=padding,
            backend=backend,
        )

    assert torch.autograd.gradcheck(attend, (q, q_neg, k, v, bias), **ONE_DIRECTION)


@pytest.mark.parametrize("kind", ["boolean", "-inf", "least"])
@every_name
def test_a_row_that_a_mask_hides_whole_is_zero_and_passes_no_gradient(case, kind):
    called = Called(case)
    given = inputs().map(lambda tensor: tensor.requires_grad_())
    hidden = torch.zeros(5, 5, dtype=torch.bool)
    hidden[2] = True
    if kind != "boolean":
        filled = float("-inf") if kind == "-inf" else torch.finfo(torch.float64).min
        hidden = torch.zeros(5, 5, dtype=torch.float64).masked_fill(hidden, filled)
    mechanism = called.mechanism
    if mechanism.needs_every_layer or not mechanism.mixes_only:
        pytest.skip("adds more than its weights times the values")
    for need_weights in (False, True):
        output, _ = mechanism(given.q, given.k, given.v, attn_mask=hidden, need_weights=need_weights)
        assert not output[:, :, 2].any()
        gradients = torch.autograd.grad(output.sum(), [given.q, given.k, given.v], allow_unused=True)
        assert all(gradient.isfinite().all() for gradient in gradients if gradient is not None)
        assert not gradients[0][:, :, 2].any()


@pytest.mark.parametrize("backend", ["sdpa", "reference"])
def test_a_row_that_floats_hide_whole_passes_no_gradient_through_any_backend(backend):
    q, k, v = (torch.randn(2, 2, 4, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.zeros(4, 4, dtype=torch.float64)
    mask[1] = float("-inf")
    sum_of_softmaxes((q, q), k, v, (1.4, -0.7), attn_mask=mask, backend=backend).sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in (q, k, v)) and not q.grad[:, :, 1].any()


@every_name
def test_the_last_targets_over_a_prefix_are_those_of_the_whole(case):
    called, given = Called(case), inputs()
    if called.name in ("gfsa", "neutreno"):
        pytest.skip("needs what the earlier targets left: with its state, in test_mechanisms")
    with torch.no_grad():
        every, _ = called.mechanism(given.q, given.k, given.v, query_input=given.x, causal=True)
        last, _ = called.mechanism(given.q[:, :, 3:], given.k, given.v, query_input=given.x[:, 3:], causal=True)
    assert_close(last, every[:, :, 3:], **EXACT)


@every_name
def test_grouped_keys_serve_their_heads(case):
    called, given = Called(case), inputs()
    if called.mechanism.needs_every_layer:
        pytest.skip("needs the first layer's values")
    k, v = given.k[:, ::2], given.v[:, ::2]
    with torch.no_grad():
        grouped, _ = called.mechanism(given.q, k, v, query_input=given.x)
        repeated, _ = called.mechanism(
            given.q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), query_input=given.x
        )
    assert_close(grouped, repeated, rtol=0, atol=0)
    with pytest.raises(UsageError, match=f"3 heads of keys or values for {HEADS} heads"):
        called.mechanism(given.q, given.k[:, :3], given.v[:, :3])


@every_name
def test_masks_that_do_not_fit_are_named(case):
    name, _ = case
    mechanism = build(name, Site(8, 2, layer=1, layers=3))
    q = torch.zeros(1, 2, 3, 4)
    call = {"query_input": torch.zeros(1, 3, 8)}
    with pytest.raises(UsageError, match=r"broadcastable to .* = \[1, 2, 3, 3\], got shape \[4, 3\]"):
        mechanism(q, q, q, attn_mask=torch.zeros(4, 3), **call)
    with pytest.raises(UsageError, match=r"booleans \(true: hidden\) or floats \(added\), got torch.int64"):
        mechanism(q, q, q, attn_mask=torch.zeros(3, 3, dtype=torch.int64), **call)
    if not mechanism_class(name).takes_bias:
        with pytest.raises(UsageError, match="wanted one that only hides"):
            mechanism(q, q, q, attn_mask=torch.ones(3, 3), **call)
