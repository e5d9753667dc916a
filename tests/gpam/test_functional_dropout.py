"""Attention dropout of the core: reproducible, with the right mean, exact gradients, and two different models."""

import pytest
import torch
from mechanism_cases import ONE_DIRECTION
from test_functional import BACKENDS, FUSED

from gpam.attention import functional
from gpam.attention.backends import tiling
from gpam.attention.backends.dropout import fill_dropout, random_words
from gpam.attention.functional import dual_softmax, softmax_attention

PLACES = ("branches", "combined")


def inputs(length=20, batch=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(batch, 2, length, 4, generator=generator, dtype=dtype) for _ in range(4)]
    weights = [torch.randn(2, generator=generator, dtype=dtype) for _ in range(2)]
    return [tensor.requires_grad_() for tensor in (*tensors, *weights)]


def seeded(seed, *args, **options):
    torch.manual_seed(seed)
    return dual_softmax(*args, **options)


@pytest.mark.parametrize("backend", functional.BACKENDS)
def test_the_seed_decides(backend):
    args = inputs(dtype=torch.float32)
    first, other, again = (seeded(seed, *args, dropout=0.3, backend=backend) for seed in (1, 2, 1))
    assert torch.equal(first, again) and not torch.allclose(first, other)
    assert not torch.allclose(dual_softmax(*args, dropout=0.3, backend=backend), again)  # the next call draws anew


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_by_finite_differences(backend, place, causal, monkeypatch):
    monkeypatch.setattr(tiling, "ROWS", 3)
    monkeypatch.setattr(tiling, "CHUNK_BYTES", 1)
    monkeypatch.setattr(tiling, "SHORT_CHUNK_BYTES", 1)
    assert torch.autograd.gradcheck(
        lambda *args: seeded(7, *args, dropout=0.4, dropout_on=place, causal=causal, backend=backend),
        inputs(4, 1),
        **ONE_DIRECTION,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", PLACES)
def test_the_mean_is_attention_without_dropout(backend, place):
    if backend in ("sdpa", "grouped") and place == "combined":
        pytest.skip("not offered")
    with torch.no_grad():
        few = [tensor[:1] if tensor.dim() == 4 else tensor for tensor in inputs(6)]
        many = [tensor.expand(8_000, -1, -1, -1) if tensor.dim() == 4 else tensor for tensor in few]
        samples = seeded(3, *many, dropout=0.2, dropout_on=place, backend=backend)
        error = samples.mean(0) - dual_softmax(*few, backend="reference")[0]
        standard_error = samples.std(0) / len(samples) ** 0.5
    assert (error.abs() / standard_error).max() < 5


@pytest.mark.parametrize("backend", ("batched", "materialised", "packed", "tiled", "reference"))
def test_the_two_places_are_two_models(backend):
    """With equal queries and weights P = 0: one mask on P leaves it zero, a mask on each branch does not."""
    q, _, k, v, *_ = inputs()
    combined, branches = (
        seeded(1, q, q, k, v, 1.0, 1.0, dropout=0.3, dropout_on=place, backend=backend) for place in reversed(PLACES)
    )
    assert combined.abs().max() < 1e-12 and branches.abs().max() > 1e-3


def test_beside_an_attn_mask_combined_dropout_is_combined():
    q, _, k, v, *_ = inputs()
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).triu(1)
    options = {"attn_mask": hidden, "dropout": 0.3, "dropout_on": "combined"}
    assert seeded(1, q, q, k, v, 1.0, 1.0, **options).abs().max() < 1e-12


@pytest.mark.parametrize("backend", FUSED)
def test_dropped_share_and_scale(backend):
    """With a query of zeros and V the identity the output is the dropped probabilities: 0 or 1/(n (1-p))."""
    length, p = 40, 0.25
    zeros, identity = torch.zeros(8, 1, length, 4), torch.eye(length).expand(8, 1, length, length)
    out = softmax_attention(zeros, torch.zeros(8, 1, length, 4), identity, dropout=p, backend=backend)
    kept = out != 0
    torch.testing.assert_close(out[kept], torch.full_like(out[kept], 1 / (length * (1 - p))))
    assert abs(kept.double().mean() - (1 - p)) < 5 * (p * (1 - p) / kept.numel()) ** 0.5


@pytest.mark.parametrize("elements, p", [(1, 0.5), (7, 0.1), (200_001, 0.1), (200_000, 0.9), (10, 1e-9)])
def test_dropout_factors(elements, p):
    generator = torch.Generator().manual_seed(0)
    words = torch.empty(random_words(elements) + 3, dtype=torch.int64)
    factors = fill_dropout(torch.full((elements,), float("nan"), dtype=torch.float64), p, generator, words)
    kept = factors[factors != 0]
    share = max(1, round(p * 65536)) / 65536
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - share)), rtol=1e-12, atol=0)
    if elements > 1000:
        for lane in range(4):  # the four numbers made of one random word
            drops = (factors[lane::4] == 0).double()
            assert abs(drops.mean() - p) < 5 * (p * (1 - p) / len(drops)) ** 0.5


@pytest.mark.parametrize("backend", ["tiled", "materialised"])
def test_masks_of_a_backward_pass_on_other_threads_are_those_of_the_forward_pass(backend, monkeypatch):
    def gradients(threads):
        torch.manual_seed(3)
        leaves = [torch.randn(16, 8, 130, 16, requires_grad=True) for _ in range(4)]
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
        out = dual_softmax(*leaves, 1.2, 0.3, dropout=0.2, backend=backend)
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        return torch.autograd.grad(out.square().sum(), leaves)

    for one, two in zip(gradients(1), gradients(2), strict=True):
        assert torch.equal(one, two)
