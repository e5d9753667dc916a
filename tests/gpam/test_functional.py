"""The attention core against an independent float64 formula: every backend, forward and all gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gpam.attention import functional
from gpam.attention.backends import tiled, tiling, workspace
from gpam.attention.functional import dual_softmax, softmax_attention, sum_of_softmaxes
from gpam.attention.parts import scaled_scores
from gpam.errors import UsageError
from gpam.tracing import in_autocasts_dtype

FUSED = ("batched", "materialised", "tiled")
BACKENDS = tuple(name for name in functional.BACKENDS if name != "compiled")  # float32 only: test_compiled


def formula(queries, keys, v, weights, key_padding_mask=None, causal=False):
    """The definition, row by row of the mask, in float64; ``keys`` one a branch, weights broadcastable to 4-d."""
    target, source = queries[0].shape[2], v.shape[2]
    visible = torch.ones(v.shape[0], 1, target, source, dtype=torch.bool)
    if causal:
        visible = visible & (torch.arange(source)[None, :] <= torch.arange(target)[:, None])
    if key_padding_mask is not None:
        visible = visible & ~key_padding_mask[:, None, None, :]
    total = 0
    for query, key, weight in zip(queries, keys, weights, strict=True):
        scores = torch.einsum("bhid,bhjd->bhij", query, key) / query.shape[-1] ** 0.5
        top = scores.masked_fill(~visible, -1e300).amax(-1, keepdim=True)
        exponentials = torch.where(visible, (scores - top).clamp(max=0).exp(), 0.0)
        normaliser = exponentials.sum(-1, keepdim=True)
        total = total + weight * exponentials / torch.where(normaliser > 0, normaliser, 1.0)
    return torch.einsum("bhij,bhjd->bhid", total, v)


def random_heads(generator, batch, heads, length, dim, layout="bhnd", dtype=torch.float64):
    """A leaf tensor in one of the layouts in use, and its ``[batch, heads, length, dim]`` view."""
    shapes = {
        "bhnd": (batch, heads, length, dim),
        "tbc": (length, batch, heads, dim),
        "btc": (batch, length, heads, dim),
    }
    orders = {"bhnd": (0, 1, 2, 3), "tbc": (1, 2, 0, 3), "btc": (0, 2, 1, 3)}
    leaf = torch.randn(shapes[layout], generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    return leaf, leaf.permute(orders[layout])


def random_weights(generator, kind, batch, heads, target):
    shape = {"scalar": (), "head": (heads,), "token": (batch, heads, target, 1), "row": (target, 1)}[kind]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)]


def as_4d(weight):
    return weight.view(-1, 1, 1) if weight.dim() == 1 else weight


def padding(batch, source, kind):
    """Right padding of other lengths in every sequence, left padding, or a sequence of nothing but padding."""
    if kind is None:
        return None
    mask = torch.zeros(batch, source, dtype=torch.bool)
    for row in range(batch):
        hidden = (row * source) // (2 * batch)
        if kind == "left":
            mask[row, :hidden] = True
        else:
            mask[row, source - hidden :] = True
    if kind == "full":
        mask[-1] = True
    return mask


def forward_and_gradients(out, leaves, generator):
    upstream = torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream)]


@pytest.mark.parametrize("backend", ("auto", *BACKENDS))
def test_scores_in_float16_are_divided_before_they_are_too_large(backend):
    q = torch.full((1, 1, 2, 64), 40.0, dtype=torch.float16)  # q k^T is 102,400, float16's largest number 65,504
    assert scaled_scores(q, q).isfinite().all()
    assert dual_softmax(q, q, q, q, 1.5, 0.5, backend=backend).isfinite().all()


@pytest.mark.parametrize("backend", ("auto", *BACKENDS))
def test_no_query_gives_nothing_and_no_key_zeros(backend):
    """As torch's own attention."""
    some, none = torch.ones(2, 3, 5, 4, requires_grad=True), torch.ones(2, 3, 0, 4, requires_grad=True)
    assert softmax_attention(none, some, some, backend=backend).shape == (2, 3, 0, 4)
    assert softmax_attention(none, none, none, backend=backend, causal=True).shape == (2, 3, 0, 4)
    (grad,) = torch.autograd.grad(softmax_attention(some, none, none, backend=backend).sum(), some)
    assert not grad.any() and not softmax_attention(some, none, none, backend=backend).any()


def assert_matches_formula(
    backend, *, target, source, batch=2, heads=3, dim=4, value_dim=4, layout="tbc", weights="head", mask=None,
    causal=False, separate_keys=False, dtype=torch.float64, tolerance=1e-11, learned=True,
):  # fmt: skip
    generator = torch.Generator().manual_seed(target * 1000 + source)
    queries = [random_heads(generator, batch, heads, target, dim, layout, dtype) for _ in range(2)]
    keys = [random_heads(generator, batch, heads, source, dim, layout, dtype) for _ in range(1 + separate_keys)]
    value = random_heads(generator, batch, heads, source, value_dim, layout, dtype)
    coefficients = random_weights(generator, weights, batch, heads, target)
    leaves = [leaf for leaf, _ in (*queries, *keys, value)]
    if learned:
        leaves += coefficients
    else:
        coefficients = [weight.detach() for weight in coefficients]
    key_padding_mask = padding(batch, source, mask)
    views = [[view for _, view in group] for group in (queries, keys)]
    out = sum_of_softmaxes(
        *views, value[1], coefficients, key_padding_mask=key_padding_mask, causal=causal, backend=backend
    )
    assert out.dtype == dtype and out.shape == (batch, heads, target, value_dim)
    got = forward_and_gradients(out, leaves, torch.Generator().manual_seed(5))
    exact = formula(
        [q.double() for q in views[0]],
        [k.double() for k in views[1]] * (2 - separate_keys),
        value[1].double(),
        [as_4d(c) for c in coefficients],
        key_padding_mask,
        causal,
    )
    want = forward_and_gradients(exact, leaves, torch.Generator().manual_seed(5))
    names = ["out", *(f"d{n}" for n in ("q", "q_neg", *(["k", "k_neg"] if separate_keys else ["k"]), "v", "a", "b"))]
    for name, ours, theirs in zip(names[: len(want)], got, want, strict=True):
        error = (ours.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp(min=1.0)
        assert error < tolerance, (name, float(error))


#: Every pair of a length beside the tiles' borders, a mask, a layout and a kind of weights stands in one of these.
SHAPES = (
    {"target": 1, "source": 1, "causal": True},
    {"target": 14, "source": 14, "mask": "left", "weights": "row", "layout": "btc"},
    {"target": 63, "source": 63, "causal": True, "mask": "right", "weights": "token", "layout": "bhnd"},
    {"target": 64, "source": 64, "mask": "full", "weights": "scalar"},
    {"target": 64, "source": 64, "causal": True, "mask": "left", "weights": "token", "layout": "btc"},
    {"target": 65, "source": 65, "mask": "right", "weights": "row", "layout": "bhnd"},
    {"target": 65, "source": 65, "causal": True, "mask": "full", "weights": "row", "layout": "btc"},
    {"target": 67, "source": 67, "mask": "left", "weights": "scalar", "layout": "bhnd"},
    {"target": 130, "source": 130, "causal": True, "weights": "scalar", "layout": "btc"},
    {"target": 130, "source": 130, "mask": "full", "weights": "token", "layout": "bhnd"},
    {"target": 1, "source": 70, "mask": "full"},
    {"target": 70, "source": 1, "weights": "token", "layout": "btc"},
    {"target": 20, "source": 9, "mask": "right", "weights": "scalar", "layout": "btc"},
    {"target": 33, "source": 100, "mask": "left", "layout": "bhnd"},
    {"target": 130, "source": 17, "mask": "right", "weights": "row"},
    {"target": 66, "source": 66, "causal": True, "separate_keys": True, "value_dim": 8, "weights": "token"},
    {"target": 70, "source": 33, "mask": "right", "separate_keys": True, "value_dim": 8, "weights": "row"},
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_and_gradients(backend, shape):
    assert_matches_formula(backend, **shape)


@pytest.mark.parametrize("backend", FUSED)
def test_rows_of_more_than_a_thousand_keys(backend):
    assert_matches_formula(backend, batch=1, heads=1, target=1100, source=1100, causal=True)


@pytest.mark.parametrize("backend", ["tiled", "materialised"])
@pytest.mark.parametrize("separate_keys", [False, True])
@pytest.mark.parametrize("one_pass", [0, 1 << 40])
def test_weights_that_are_not_learned(backend, separate_keys, one_pass, monkeypatch):
    """Large tiles take another way then, as nobody wants the gradient of the weights."""
    monkeypatch.setattr(tiled, "ONE_PASS", one_pass)
    options = {"separate_keys": separate_keys, "learned": False}
    assert_matches_formula(backend, target=130, source=130, causal=True, mask="left", **options)
    assert_matches_formula(backend, target=70, source=33, weights="token", **options)
    assert_matches_formula(backend, target=70, source=70, dtype=torch.float32, tolerance=2e-6, **options)


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("bytes_a_thread", [1, 5000, 40_000])
@pytest.mark.parametrize("rows", [5, 64])
def test_any_tiling_gives_the_same(backend, bytes_a_thread, rows, monkeypatch):
    monkeypatch.setattr(tiling, "CHUNK_BYTES", bytes_a_thread)
    monkeypatch.setattr(tiling, "SHORT_CHUNK_BYTES", bytes_a_thread)
    monkeypatch.setattr(tiling, "ROWS", rows)
    for shape in ({"batch": 5, "heads": 3, "target": 21, "source": 21, "causal": True}, {"target": 21, "source": 9}):
        assert_matches_formula(backend, mask="full", weights="token", **shape)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("causal", [False, True])
def test_float32_and_bfloat16(backend, causal):
    assert_matches_formula(backend, target=130, source=130, dtype=torch.float32, causal=causal, tolerance=5e-6)
    assert_matches_formula(backend, target=130, source=130, dtype=torch.bfloat16, causal=causal, tolerance=4e-2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_weights_are_not_rounded_in_bfloat16(backend):
    """In it 1 + lambda+ moves in steps of 1/128: the mean of the output would be off by up to half of one."""
    q, q_neg, k = (draw.bfloat16() for draw in torch.randn(3, 2, 2, 40, 8, generator=torch.Generator().manual_seed(1)))
    v = torch.ones(2, 2, 40, 4, dtype=torch.bfloat16)
    v += torch.linspace(-1, 1, 40, dtype=torch.bfloat16)[:, None]
    for weight in (1.003, torch.tensor(1.003)):
        found, wanted = (
            dual_softmax(*(x.to(dtype) for x in (q, q_neg, k, v)), weight, 0.2, backend=name).double().mean()
            for dtype, name in ((torch.bfloat16, backend), (torch.float64, "reference"))
        )
        assert abs(found - wanted) < 8e-4


@pytest.mark.parametrize("backend", FUSED)
def test_bfloat16_sums_over_many_rows_stay_exact(backend):
    """A sum of 1024 equal terms of 1/1024 in bfloat16 stops growing at 1/4; in float32 it is exact."""
    length = 1024
    v = torch.zeros(1, 1, length, 1, dtype=torch.bfloat16, requires_grad=True)
    zeros = torch.zeros(1, 1, length, 1, dtype=torch.bfloat16)
    softmax_attention(zeros, zeros, v, backend=backend).sum().backward()
    torch.testing.assert_close(v.grad, torch.ones_like(v))


@st.composite
def shapes(draw):
    """Arguments of :func:`assert_matches_formula`."""
    drawn = {name: draw(st.integers(1, 3)) for name in ("batch", "heads")}
    drawn |= {name: draw(st.integers(1, 6)) for name in ("dim", "value_dim")}
    drawn |= {name: draw(st.booleans()) for name in ("causal", "separate_keys")}
    target, other = draw(st.integers(1, 140)), draw(st.integers(1, 140))
    return drawn | {
        "target": target,
        "source": target if drawn["causal"] else other,
        "layout": draw(st.sampled_from(["bhnd", "tbc", "btc"])),
        "weights": draw(st.sampled_from(["scalar", "head", "token", "row"])),
        "mask": draw(st.sampled_from([None, "right", "left", "full"])),
    }


@settings(max_examples=60, deadline=None)
@given(backend=st.sampled_from(("auto", *FUSED)), shape=shapes())
def test_random_shapes(backend, shape):
    assert_matches_formula(backend, **shape)


@pytest.mark.parametrize("backend", BACKENDS)
def test_softmax_is_the_case_of_one_branch(backend):
    generator = torch.Generator().manual_seed(1)
    (lq, q), (lk, k), (lv, v) = (random_heads(generator, 2, 3, 70, 4, "tbc") for _ in range(3))
    mask = padding(2, 70, "full")
    one = torch.ones(())
    got = softmax_attention(q, k, v, key_padding_mask=mask, backend=backend)
    want = formula([q], [k], v, [one], mask)
    for ours, theirs in zip(
        forward_and_gradients(got, [lq, lk, lv], torch.Generator().manual_seed(2)),
        forward_and_gradients(want, [lq, lk, lv], torch.Generator().manual_seed(2)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
    weight = torch.tensor(0.7, requires_grad=True, dtype=torch.float64)
    weighted = sum_of_softmaxes([q], k, v, [weight], key_padding_mask=mask, backend=backend)
    torch.testing.assert_close(weighted, 0.7 * want)
    (grad,) = torch.autograd.grad(weighted.sum(), weight)
    torch.testing.assert_close(grad, want.sum())
    doubled = sum_of_softmaxes([q], k, v, [2.0], key_padding_mask=mask, backend=backend)
    torch.testing.assert_close(doubled, 2 * want)


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("length, causal", [(21, False), (21, True), (70, True)])
def test_uninitialised_memory_does_not_leak(backend, length, causal, poisoned_memory, monkeypatch):
    monkeypatch.setattr(tiling, "CHUNK_BYTES", 20_000)
    monkeypatch.setattr(tiling, "SHORT_CHUNK_BYTES", 20_000)
    workspace.POOL.clear()
    assert_matches_formula(backend, batch=3, target=length, source=length, mask="full", causal=causal, weights="token")
    workspace.POOL.clear()
    assert_matches_formula(backend, batch=3, target=length, source=length, causal=causal, weights="head")


@pytest.mark.parametrize("backend", FUSED)
def test_a_gradient_alone_is_that_of_all(backend):
    generator = torch.Generator().manual_seed(6)
    q, q_neg, k, v = (random_heads(generator, 1, 2, 66, 4)[0] for _ in range(4))
    frozen = [t.detach() for t in (q, q_neg, k, v)]
    for position, leaf in enumerate((q, q_neg, k, v)):
        mixed = [leaf if i == position else t for i, t in enumerate(frozen)]
        every = dual_softmax(q, q_neg, k, v, 1.2, 0.3, backend="reference")
        (alone,) = torch.autograd.grad(dual_softmax(*mixed, 1.2, 0.3, backend=backend).sum(), leaf)
        torch.testing.assert_close(alone, torch.autograd.grad(every.sum(), leaf)[0])
    with torch.no_grad():
        assert not dual_softmax(q, q_neg, k, v, 1.2, 0.3, backend=backend).requires_grad


@pytest.mark.parametrize("backend", FUSED)
@pytest.mark.parametrize("upstream", [lambda out: out.square(), lambda out: out], ids=["squared", "constant"])
@pytest.mark.parametrize("leaf", range(4))
def test_double_backward_raises(backend, upstream, leaf):
    """Also where the incoming gradient is a constant, and a loss has other parts."""
    generator = torch.Generator().manual_seed(6)
    leaves = [random_heads(generator, 1, 1, 4, 2)[0] for _ in range(4)]
    out = dual_softmax(*leaves, 1.2, 0.3, backend=backend)
    (grad,) = torch.autograd.grad(upstream(out).sum(), leaves[0], create_graph=True)
    with pytest.raises(RuntimeError, match="a second derivative"):
        torch.autograd.grad(out.sum() + grad.square().sum(), leaves[leaf])


@pytest.mark.parametrize("backend", ("auto", *BACKENDS))
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("causal", [False, True])
def test_what_stands_at_padded_places_is_not_seen(backend, value, causal):
    generator = torch.Generator().manual_seed(7)
    inputs = [random_heads(generator, 2, 2, 9, 4)[0] for _ in range(4)]
    mask = padding(2, 9, "right")
    spoiled = [inputs[0], inputs[1], *(t.detach().masked_fill(mask[:, None, :, None], value) for t in inputs[2:])]
    spoiled[2:] = [tensor.requires_grad_() for tensor in spoiled[2:]]
    options = {"key_padding_mask": mask, "causal": causal, "backend": backend}
    got, want = (
        forward_and_gradients(dual_softmax(*given, 1.3, 0.4, **options), given, torch.Generator().manual_seed(2))
        for given in (spoiled, inputs)
    )
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("backend", ("auto", *BACKENDS))
def test_autocast_computes_in_its_dtype(backend):
    generator = torch.Generator().manual_seed(8)
    inputs = [random_heads(generator, 2, 2, 9, 4, dtype=torch.float32)[0] for _ in range(4)]
    mixed = [inputs[0], inputs[1].bfloat16(), *inputs[2:]]
    want = dual_softmax(*(tensor.bfloat16() for tensor in inputs), 1.3, 0.4, backend=backend)
    with torch.autocast("cpu", torch.bfloat16):
        got = dual_softmax(*mixed, 1.3, 0.4, backend=backend)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert all(torch.isfinite(grad).all() for grad in torch.autograd.grad(got.sum(), inputs))


def test_a_key_of_all_branches_stays_one_under_autocast():
    q, k = torch.zeros(2, 2, 9, 4), torch.zeros(2, 2, 9, 4)
    with torch.autocast("cpu", torch.bfloat16):
        first, second, other = in_autocasts_dtype(k, k, q)
    assert first is second and first is not other and first.dtype == torch.bfloat16


def test_mistakes_are_named():
    q, other = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 6, 4)
    for call, message in (
        (lambda: softmax_attention(q, q, q, backend="tilde"), "did you mean 'tiled'"),
        (lambda: softmax_attention(other, q, q, causal=True), "target length 6 and source length 5"),
        (
            lambda: softmax_attention(q, q, q, attn_mask=torch.zeros(5, 6), backend="auto"),
            r"attn_mask must be broadcast",
        ),
        (
            lambda: softmax_attention(q, q, q, attn_mask=torch.zeros(5, 5), backend="tiled"),
            "takes key_padding_mask and",
        ),
        (lambda: softmax_attention(q, q, q, dropout=1.0), r"\[0, 1\), got 1.0"),
        (lambda: softmax_attention(q, other, q), r"a key must be \[batch=2, heads=3, source=5, head_dim=4\]"),
        (lambda: softmax_attention(q, q.double(), q), "one floating point dtype"),
        (lambda: softmax_attention(q[0], q, q), "every query must be"),
        (lambda: softmax_attention(q, q, q, key_padding_mask=torch.zeros(2, 5)), "must be a bool tensor"),
        (lambda: dual_softmax(q, q, q, q, torch.zeros(4), 1.0), r"a weight must be a number, a \[heads=3\]"),
        (lambda: dual_softmax(q, q, q, q, 1.0, 1.0, dropout_on="branch"), "did you mean 'branches'"),
        (lambda: sum_of_softmaxes([q, q], q, q, [1.0]), "one weight a branch"),
        (lambda: sum_of_softmaxes([], q, q, []), "at least one query"),
        (lambda: softmax_attention(q[:, :0], q[:, :0], q[:, :0]), "neither heads nor their width may be 0"),
        (
            lambda: dual_softmax(q, q, q, q, 1.0, 1.0, dropout=0.1, dropout_on="combined", backend="sdpa"),
            "cannot do dropout_on='combined'",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            call()
