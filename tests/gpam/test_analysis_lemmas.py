"""The paper's lemmas: where they hold, where they fail, and their formulas against autograd."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpam.analysis import composite_norm, lemmas, residual

double = torch.float64


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


rows = st.lists(st.floats(1e-6, 1), min_size=2, max_size=7).map(
    lambda values: torch.tensor(values, dtype=double) / sum(values)
)

# ------------------------------------------------------------------------------------------------------ lemmas 1 and 4


def head(scale, tokens=6, width=5, head_dim=3, seed=0):
    x = numbers(tokens, width, seed=seed)
    w_q, w_k, w_neg = (
        scale * numbers(*shape, seed=seed + 1 + i)
        for i, shape in enumerate([(width, head_dim)] * 2 + [(head_dim, head_dim)])
    )
    return x, w_q, numbers(head_dim, seed=seed + 4), w_k, w_neg / scale, numbers(width, head_dim, seed=seed + 5)


def bounds(scale, lambda_pos, lambda_neg, relu=True, **shape):
    """Lemma 4's bound of one daGPAM head, whose output is computed here by its formula."""
    x, w_q, b_q, w_k, w_neg, w_v = head(scale, **shape)
    found = residual(x)
    rest = x - found.row
    q, k = x @ w_q + b_q, x @ w_k + 0.7
    root = w_q.shape[1] ** 0.5
    negative_query = (q.clamp(min=0) if relu else q) @ w_neg
    positive, negative = torch.softmax(q @ k.T / root, -1), torch.softmax(negative_query @ k.T / root, -1)
    weights = (1 + lambda_pos) * positive - lambda_neg * negative
    branches = [
        lemmas.positive_branch(1 + lambda_pos, rest, w_q, w_k),
        lemmas.negative_branch(-lambda_neg, rest, found.row, w_q, b_q, w_neg, w_k, relu=relu),
    ]
    # A bias of the values moves every row alike.
    return lemmas.residual_bound(rest, weights @ (x @ w_v + 0.3), w_v, branches), (x, w_q, b_q, w_k, w_neg, branches)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.02, 0.3), st.floats(0, 1.5), st.floats(0, 1.5), st.booleans())
def test_bounds_hold_where_scores_are_small(seed, scale, lambda_pos, lambda_neg, relu):
    found, _ = bounds(scale, lambda_pos, lambda_neg, relu, seed=seed)
    assume(found.assumption.item())
    assert found.measured.item() <= found.before.item() * (1 + 1e-9)
    assert found.before.item() <= found.right_hand_side.item() * (1 + 1e-9)
    assert found.holds.item()


def test_deviations_are_scores_but_for_what_softmax_does_not_see():
    found, (x, w_q, b_q, w_k, w_neg, (positive, negative)) = bounds(0.2, 1.0, 0.5)
    assert found.assumption.item()
    k, root = x @ w_k, w_q.shape[1] ** 0.5
    row = residual(x).row
    for queries, of_row, branch in (
        (x @ w_q + b_q, row @ w_q + b_q, positive),
        ((x @ w_q + b_q).clamp(min=0) @ w_neg, (row @ w_q + b_q).clamp(min=0) @ w_neg, negative),
    ):
        full = torch.softmax(queries @ k.T / root, -1)
        again = torch.softmax(branch.deviations + of_row @ k.T / root, -1)
        assert torch.allclose(full, again, atol=1e-12)


def test_lemma_1_is_lemma_4_without_a_negative_branch_and_the_second_is_larger():
    four, (x, w_q, _, w_k, _, branches) = bounds(0.2, 0.5, 0.5)
    rest, w_v = x - residual(x).row, head(0.2)[-1]
    one = lemmas.residual_bound(rest, x @ w_v, w_v, [lemmas.positive_branch(1.0, rest, w_q, w_k)])
    gamma = lemmas.gamma(branches[0].deviations).item()
    size = composite_norm(rest).item()
    by_hand = 4 * 2**0.5 * gamma * (w_q @ w_k.T).abs().sum(0).max().item() * composite_norm(w_v).item() / 3**0.5
    assert one.right_hand_side.item() == pytest.approx(by_hand * size**3)
    assert four.right_hand_side.item() > one.right_hand_side.item()


def test_both_bounds_of_two_branches_by_hand():
    four, (x, w_q, _, w_k, w_neg, branches) = bounds(0.2, 0.5, 0.7)
    rest, w_v = x - residual(x).row, head(0.2)[-1]
    factors, spreads = (1.5, 0.7), [one.deviations.amax(-1) - one.deviations.amin(-1) for one in branches]
    most = sum(factor * spread.max() for factor, spread in zip(factors, spreads, strict=True))
    total = sum(factor * spread.sum() for factor, spread in zip(factors, spreads, strict=True))
    size, value = composite_norm(rest), composite_norm(w_v)
    assert four.before.item() == pytest.approx((2 * (most * total).sqrt() * size * value).item())
    mapped = (w_neg @ w_k.T).abs().sum(0).max()
    norms = ((w_q @ w_k.T).abs().sum(0).max(), w_q.abs().sum(0).max() * mapped)
    gammas = [
        spread.sum() / (2 * 2**0.5 * one.deviations.abs().sum(0).max())
        for one, spread in zip(branches, spreads, strict=True)
    ]
    right = sum(factor * gamma * norm for factor, gamma, norm in zip(factors, gammas, norms, strict=True))
    assert four.right_hand_side.item() == pytest.approx((4 * 2**0.5 * right * value * size**3 / 3**0.5).item())


def test_large_scores_leave_the_assumption():
    found, _ = bounds(3.0, 0.0, 0.0)
    assert not found.assumption.item()


def test_the_limit_of_small_scores():
    limit = lemmas.SMALL_SCORES
    assert np.expm1(limit) == pytest.approx(2 * limit, rel=1e-12)


# ------------------------------------------------------------------------------------------------------- lemmas 2 and 3


@settings(max_examples=40, deadline=None)
@given(rows)
def test_jacobian_is_autograds_and_its_norms_are_sums(p):
    exact = torch.autograd.functional.jacobian(lambda s: torch.softmax(s, -1), p.log())
    found = lemmas.softmax_jacobian(p)
    assert torch.allclose(found, exact, atol=1e-12)
    assert lemmas.jacobian_total(p).item() == pytest.approx(exact.abs().sum().item(), rel=1e-9)
    assert lemmas.jacobian_total(p).item() <= lemmas.jacobian_total_maximum(len(p)) + 1e-12


@pytest.mark.parametrize("n", [2, 3, 5, 100])
def test_uniform_row_has_the_largest_total(n):
    uniform = torch.full((n,), 1 / n, dtype=double)
    assert lemmas.jacobian_total(uniform).item() == pytest.approx(lemmas.jacobian_total_maximum(n))
    moved = uniform.clone()
    moved[0], moved[1] = 1.5 / n, 0.5 / n
    assert lemmas.jacobian_total(moved) < lemmas.jacobian_total(uniform) - 1e-6 / n


def test_what_is_given_in_half_precision_is_computed_in_float64():
    p = torch.softmax(torch.arange(1000.0) / 100, -1).half()
    for formula in (lemmas.softmax_jacobian, lemmas.jacobian_total):
        assert torch.equal(formula(p), formula(p.to(double)))
        assert torch.equal(formula(p=p), formula(p.to(double)))
    rest, w_q, w_k = (torch.randn(size).half() for size in ((6, 8), (8, 4), (8, 4)))
    branch, exact = (
        lemmas.positive_branch(1.0, *(x.to(kind) for x in (rest, w_q, w_k))) for kind in (torch.half, double)
    )
    assert torch.equal(branch.deviations, exact.deviations) and torch.equal(branch.query_key_norm, exact.query_key_norm)
    assert torch.equal(lemmas.gamma(rest), lemmas.gamma(rest.to(double)))


def test_jacobian_vanishes_at_one_hot():
    for sharpness in (10.0, 20.0, 40.0):
        p = torch.softmax(torch.tensor([sharpness, 0.0, 0.0], dtype=double), -1)
        assert lemmas.jacobian_total(p).item() == pytest.approx(8 * np.exp(-sharpness), rel=0.01)


def test_lemma_3_is_false_in_the_frobenius_norm():
    third, half = torch.full((3,), 1 / 3, dtype=double), torch.tensor([0.5, 0.5, 0.0], dtype=double)
    assert torch.linalg.matrix_norm(lemmas.softmax_jacobian(third)).item() ** 2 == pytest.approx(2 / 9)
    assert torch.linalg.matrix_norm(lemmas.softmax_jacobian(half)).item() ** 2 == pytest.approx(1 / 4)


# ------------------------------------------------------------------------------------------------------------- lemma 5


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(0, 1000), st.floats(0, 2), st.floats(0, 2))
def test_lemma_5_is_autograds_where_scores_are_opposed(n, seed, lambda_pos, lambda_neg):
    scores = numbers(n, seed=seed)

    def weights(s):
        return (1 + lambda_pos) * torch.softmax(s, -1) - lambda_neg * torch.softmax(-s, -1)

    exact = torch.autograd.functional.jacobian(weights, scores)
    p_pos, p_neg = torch.softmax(scores, -1), torch.softmax(-scores, -1)
    assert torch.allclose(lemmas.opposed_scores_gradient(p_pos, p_neg, lambda_pos, lambda_neg), exact, atol=1e-12)


def test_opposition():
    scores, visible = numbers(2, 4, 5), torch.ones(4, 5, dtype=torch.bool).tril(1)
    shift = numbers(2, 4, 1, seed=1)  # one number a row: softmax does not see it
    opposed = lemmas.opposition(scores, shift - scores, visible)
    assert opposed.tolist() == pytest.approx([-1, -1])
    assert lemmas.opposition(scores, torch.zeros_like(scores), visible).tolist() == [0, 0]
    assert lemmas.opposition(scores, 2 * scores, visible).tolist() == pytest.approx([1, 1])
    hidden = scores.masked_fill(~visible, 1e9)  # what a mask hides does not count
    assert lemmas.opposition(hidden, -scores, visible).tolist() == pytest.approx([-1, -1])
    assert lemmas.opposition(scores * torch.nan, scores, visible).isnan().all()


def test_norm_of_a_negative_branch_without_relu():
    x, w_q, b_q, w_k, w_neg, _ = head(1.0)
    found = lemmas.negative_branch(1.0, x, numbers(5, seed=9), w_q, b_q, w_neg, w_k, relu=False)
    assert found.query_key_norm.item() == pytest.approx(torch.linalg.matrix_norm(w_q @ w_neg @ w_k.T, 1).item())


def test_the_assumption_is_of_every_branch():
    rest, w_q, _, w_k, *_ = head(1.0)
    large, small = lemmas.positive_branch(1.0, rest, 9 * w_q, w_k), lemmas.positive_branch(0.5, rest, 1e-3 * w_q, w_k)
    for pair in ([large, small], [small, large]):
        assert not lemmas.residual_bound(rest, numbers(6, 3, seed=7), numbers(5, 3, seed=8), pair).assumption
