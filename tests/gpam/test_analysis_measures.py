"""Measures of rank collapse and of attention weights: analytic cases, invariances, independent float64 formulas."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch import nn

from gpam import UsageError, analysis
from gpam.analysis._linear_programme import lower_bound, minimise

MEASURES = {
    "residual_norm": analysis.residual_norm,
    "stable_rank": analysis.stable_rank,
    "effective_rank": analysis.effective_rank,
    "mean_cosine_similarity": analysis.mean_cosine_similarity,
}


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


matrices = st.builds(
    lambda tokens, width, seed, power: (
        numbers(tokens, width, seed=seed).sign() * numbers(tokens, width, seed=seed).abs() ** power
    ),
    st.integers(2, 9),
    st.integers(1, 7),
    st.integers(0, 10_000),
    st.sampled_from([0.5, 1.0, 3.0]),
)

# -------------------------------------------------------------------------------------------------------- residual norm


def product_of_norms(x, row):
    rest = np.abs(x - row)
    return math.sqrt(rest.sum(0).max() * rest.sum(1).max())


def weighted_minimum(x, a, b):
    """min of ``a ||X - 1 r^T||_1 + b ||X - 1 r^T||_inf`` by another solver, one row of constraints at a time."""
    n, d = x.shape
    size = d + n * d + 2  # r, s_ij >= |X_ij - r_j|, F, G
    above, limits = [], []
    for i in range(n):
        for j in range(d):
            for sign in (1, -1):
                row = np.zeros(size)
                row[j], row[d + i * d + j] = -sign, -1
                above.append(row)
                limits.append(-sign * x[i, j])
    for j in range(d):
        row = np.zeros(size)
        row[d + j : d + n * d : d], row[-2] = 1, -1
        above.append(row)
        limits.append(0)
    for i in range(n):
        row = np.zeros(size)
        row[d + i * d : d + (i + 1) * d], row[-1] = 1, -1
        above.append(row)
        limits.append(0)
    cost = np.zeros(size)
    cost[-2:] = a, b
    return linprog(cost, np.array(above), limits, bounds=[(None, None)] * d + [(0, None)] * (n * d + 2)).fun


@pytest.mark.parametrize("seed", range(4))
def test_weighted_minimum_is_another_solvers(seed):
    x = numbers(6, 4, seed=seed)
    for a, b in ((1.0, 1.0), (0.2, 3.0), (5.0, 0.1)):
        row, (p, q) = minimise(x[None], torch.tensor([[a, b]], dtype=torch.float64), 1e-10)
        rest = (x - row).abs()
        reached = a * rest.sum(0).max() + b * rest.sum(1).max()
        assert reached.item() == pytest.approx(weighted_minimum(x.numpy(), a, b), rel=1e-8)
        assert lower_bound(x[None], p, q).item() == pytest.approx(reached.item(), rel=1e-8)


def least_on_a_shrinking_grid(x):
    """The minimum of the product over rows of two numbers: the best point of a grid, and again around it."""
    low, high, best = x.min(0), x.max(0), math.inf
    for _ in range(12):
        for first in np.linspace(low[0], high[0], 41):
            for second in np.linspace(low[1], high[1], 41):
                value = product_of_norms(x, [first, second])
                if value < best:
                    best, at = value, np.array([first, second])
        width = (high - low) / 4
        low, high = at - width / 2, at + width / 2
    return best


@pytest.mark.parametrize(("tokens", "seed"), [(2, 0), (3, 1), (4, 2), (5, 3)])
def test_residual_is_the_least_that_a_search_finds(tokens, seed):
    x = numbers(tokens, 2, seed=seed) * torch.tensor([1.0, 3.0])
    found = analysis.residual(x, tolerance=1e-9)
    assert found.norm.item() == pytest.approx(least_on_a_shrinking_grid(x.numpy()), rel=1e-4)
    assert found.lower.item() == pytest.approx(found.norm.item(), rel=1e-8)


@settings(max_examples=25, deadline=None)
@given(matrices, st.integers(0, 100))
def test_residual_bounds_enclose_the_minimum(x, seed):
    found = analysis.residual(x)
    norm, row = found.norm.item(), found.row.numpy()
    assert norm == pytest.approx(product_of_norms(x.numpy(), row), rel=1e-9)
    assert (1 - 1.0001e-4) * norm <= found.lower.item() <= norm * (1 + 1e-12)
    for other in (
        x.median(0).values,
        x.mean(0),
        (x.amax(0) + x.amin(0)) / 2,
        found.row + 0.1 * numbers(len(row), seed=seed),
    ):
        assert product_of_norms(x.numpy(), other.numpy()) >= found.lower.item() * (1 - 1e-9)


def test_residual_by_hand():
    # Columns (0, 4, 4) and (0, 0, 2). The medians (4, 0) give columns 4 and 2, tokens 4, 0, 2: sqrt(4 * 4) = 4.
    # (4 - t, s) with t = 1, s = 1: columns 3 + 1 + 1 = 5 and 1 + 1 + 1 = 3, tokens 4, 2, 2: sqrt(5 * 4), no better.
    # (4 - t, 0): columns 4 + t and 2, tokens 4 - t, t, t + 2: (4 + t)(4 - t) = 16 - t^2 down to t = 1: sqrt(15).
    # At t = 1 the first and third token hold each other: a ball around both has at least half their distance, 3.
    found = analysis.residual(torch.tensor([[0.0, 0.0], [4.0, 0.0], [4.0, 2.0]]), tolerance=1e-9)
    assert found.norm.item() == pytest.approx(math.sqrt(15), rel=1e-8)
    assert found.row.tolist() == pytest.approx([3.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_equal_tokens_have_no_residual(tokens):
    x = numbers(1, 6).expand(tokens, 6)
    assert analysis.residual_norm(x).item() == 0
    assert analysis.residual(x).row.tolist() == x[0].tolist()


def test_a_batch_is_its_members():
    x = numbers(2, 3, 7, 5)
    x[0, 1] = 3.0
    together = analysis.residual(x)
    assert together.norm.shape == (2, 3)
    assert together.row.shape == (2, 3, 5)
    for index in np.ndindex(2, 3):
        assert together.norm[index].item() == pytest.approx(analysis.residual_norm(x[index]).item(), rel=2e-4)


# ------------------------------------------------------------------------------------------------- ranks and similarity


@settings(max_examples=12, deadline=None)
@given(matrices, st.randoms(use_true_random=False))
def test_order_of_tokens_does_not_matter(x, draw):
    order = list(range(len(x)))
    draw.shuffle(order)
    for name, measure in MEASURES.items():
        tolerance = 2e-4 if name == "residual_norm" else 1e-9
        assert measure(x[order]).item() == pytest.approx(measure(x).item(), rel=tolerance, abs=1e-12), name


@settings(max_examples=12, deadline=None)
@given(matrices, st.floats(-100, 100), st.floats(0.001, 1000))
def test_a_constant_shift_and_a_scale(x, shift, scale):
    row = shift * torch.linspace(-1, 1, x.shape[1], dtype=torch.float64)
    assert analysis.residual_norm(x + row).item() == pytest.approx(analysis.residual_norm(x).item(), rel=2e-4)
    assert analysis.residual_norm(scale * x).item() == pytest.approx(scale * analysis.residual_norm(x).item(), rel=2e-4)
    for name in ("stable_rank", "effective_rank", "mean_cosine_similarity"):
        assert MEASURES[name](scale * x).item() == pytest.approx(MEASURES[name](x).item(), rel=1e-9, abs=1e-12), name


@settings(max_examples=30, deadline=None)
@given(matrices)
def test_measures_are_independent_formulas(x):
    a = x.numpy()
    values = np.sqrt(np.clip(np.linalg.eigvalsh(a @ a.T), 0, None))
    assert analysis.stable_rank(x).item() == pytest.approx((a**2).sum() / values.max() ** 2, rel=1e-9)
    part = [value / values.sum() for value in values if value > 1e-7 * values.sum()]
    assert analysis.effective_rank(x).item() == pytest.approx(math.exp(-sum(p * math.log(p) for p in part)), rel=1e-4)
    cosines = [
        a[i] @ a[j] / math.sqrt((a[i] @ a[i]) * (a[j] @ a[j])) for i in range(len(a)) for j in range(len(a)) if i != j
    ]
    assert analysis.mean_cosine_similarity(x).item() == pytest.approx(sum(cosines) / len(cosines), abs=1e-9)


def test_analytic_ranks_and_similarities():
    equal, orthogonal = torch.ones(5, 3), torch.eye(4)
    assert analysis.stable_rank(equal).item() == pytest.approx(1)
    assert analysis.effective_rank(equal).item() == pytest.approx(1)
    assert analysis.mean_cosine_similarity(equal).item() == pytest.approx(1)
    assert analysis.stable_rank(orthogonal).item() == pytest.approx(4)
    assert analysis.effective_rank(orthogonal).item() == pytest.approx(4)
    assert analysis.mean_cosine_similarity(orthogonal).item() == pytest.approx(0)
    assert analysis.mean_cosine_similarity(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])).item() == pytest.approx(-1)
    assert analysis.mean_cosine_similarity(torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]])).item() == pytest.approx(
        1 / 3
    )
    for measure in (analysis.stable_rank, analysis.effective_rank, analysis.residual_norm):
        assert measure(torch.zeros(3, 2)).item() == 0
    assert analysis.stable_rank(torch.zeros(0, 3)).item() == 0


def test_float32_tokens_are_measured_in_float64():
    close = torch.ones(3, 2, dtype=torch.float32)
    close[0, 0] += 1e-6  # squares of such a difference are lost in float32
    assert 0 < 1 - analysis.mean_cosine_similarity(close).item() < 1e-12
    assert all(measure(close).dtype == torch.float64 for measure in MEASURES.values())


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: analysis.residual_norm(torch.zeros(3)), "wanted [..., tokens, width]"),
        (lambda: analysis.residual_norm(torch.zeros(0, 3)), "at least one token"),
        (lambda: analysis.residual_norm(torch.full((2, 2), torch.nan)), "not finite"),
        (lambda: analysis.mean_cosine_similarity(torch.zeros(1, 3)), "at least two"),
    ],
)
def test_what_cannot_be_measured_is_said(call, sentence):
    with pytest.raises(UsageError) as error:
        call()
    assert sentence in str(error.value)


# ------------------------------------------------------------------------------------------------------------- weights


def test_uniform_attention():
    uniform = torch.full((2, 3, 4, 8), 1 / 8)
    assert analysis.negative_mass(uniform).tolist() == [[0.0] * 3] * 2
    assert torch.allclose(analysis.entropy(uniform), torch.full((2, 3, 4), math.log(8), dtype=torch.float64))
    for measure in (analysis.attention_to_first, analysis.sharpness):
        assert torch.allclose(measure(uniform), torch.full((2, 3, 4), 1 / 8, dtype=torch.float64))


def test_weights_of_both_signs():
    weights = torch.tensor([[1.5, -0.5, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert analysis.negative_mass(weights).item() == pytest.approx(0.5 / 3)
    assert analysis.attention_to_first(weights).tolist() == [0.75, 0, 0]
    assert analysis.sharpness(weights).tolist() == [0.75, 0, 1]
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert analysis.entropy(weights).tolist() == pytest.approx([expected, 0, 0])
    assert analysis.negative_mass(torch.zeros(2, 2)).item() == 0
    lost = torch.full((2, 2), math.nan)
    for measure in (analysis.negative_mass, analysis.entropy, analysis.sharpness, analysis.mean_cosine_similarity):
        assert measure(lost).isnan().all()
    assert analysis.negative_mass(-torch.eye(2)).item() == 1


# ----------------------------------------------------------------------------------------------------------- gradients


def test_gradient_norms():
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    assert analysis.gradient_norms(dict(model.named_parameters())) == {}
    model(torch.tensor([[1.0, 2.0]])).sum().backward()
    found = analysis.gradient_norms(dict(model.named_parameters()))
    assert list(found) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    for name, parameter in model.named_parameters():
        assert found[name] == pytest.approx(math.sqrt(sum(g**2 for g in parameter.grad.flatten().tolist())), rel=1e-5)
    assert analysis.gradient_norms({"only": model[0].weight}) == {"only": found["0.weight"]}
    model.double()
    assert analysis.gradient_norms(dict(model.named_parameters())) == pytest.approx(found)


def test_gradients_beyond_the_range_of_float32_have_norms():
    for scale in (1e30, 1e-30):
        weight = nn.Parameter(torch.zeros(3))
        weight.grad = torch.full((3,), scale)
        assert analysis.gradient_norms({"w": weight})["w"] == pytest.approx(scale * math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e200, 1e-200])
def test_ranks_and_cosines_are_of_no_scale(scale):
    assert analysis.stable_rank(scale * torch.eye(3, dtype=torch.float64)) == pytest.approx(3.0)
    assert analysis.effective_rank(scale * torch.eye(3, dtype=torch.float64)) == pytest.approx(3.0)
    assert analysis.mean_cosine_similarity(scale * torch.ones(3, 3, dtype=torch.float64)) == pytest.approx(1.0)


def test_a_sparse_gradient_has_its_norm():
    words = nn.Embedding(5, 2, sparse=True)
    words(torch.tensor([1, 1, 3])).sum().backward()
    assert analysis.gradient_norms({"words": words.weight}) == {"words": pytest.approx(math.sqrt(10))}
