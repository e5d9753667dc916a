"""Backend "compiled": its numbers in float32 against the float64 formula, its dropout, and what happens without it."""

import itertools
import multiprocessing
import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from test_functional import SHAPES, assert_matches_formula, random_heads, shapes

from gpam.attention import functional
from gpam.attention.backends import calibration
from gpam.attention.backends import compiled as module
from gpam.attention.backends.compiled import library
from gpam.attention.functional import dual_softmax, softmax_attention, sum_of_softmaxes

FLOAT32 = {"dtype": torch.float32, "tolerance": 1e-5}


@pytest.fixture(autouse=True)
def there(compiled_library):
    if compiled_library is None:
        pytest.skip("no C compiler")


@pytest.fixture
def another(tmp_path, monkeypatch):
    """A place of the library's own for one test; nothing that this process knew of a library holds on."""
    path = tmp_path / "attention.so"
    known = (library.load, calibration._of_this_process)
    with monkeypatch.context() as patch:
        patch.setattr(library, "path", lambda: path)
        for cached in known:
            cached.cache_clear()
        yield path
    for cached in known:
        cached.cache_clear()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_and_gradients_of_weights_that_are_numbers(shape):
    assert_matches_formula("compiled", learned=False, **shape, **FLOAT32)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kept", [0, 1 << 30])
def test_output_and_gradients(shape, kept, poisoned_memory, monkeypatch):
    """Of learned weights; and nothing of uninitialised memory leaks into them."""
    monkeypatch.setattr(module, "KEPT_BYTES", kept)
    assert_matches_formula("compiled", **shape, **FLOAT32)


def test_strides_that_change_on_the_way_back():
    """By a hook on saved tensors, and where numbers of an input share memory, so that torch's gradient has others."""
    q, k = torch.randn(500).as_strided((2, 2, 20, 16), (0, 1, 1, 1)).requires_grad_(), torch.randn(2, 2, 20, 16)

    def turned(x):
        return x.mT if x.dim() > 1 else x

    def gradient(backend):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: turned(x).contiguous(), turned):
            output = softmax_attention(q, k, k.mT.contiguous().mT, backend=backend)
        return torch.autograd.grad(output.square().sum(), q)[0]

    torch.testing.assert_close(gradient("compiled"), gradient("reference"))


@pytest.mark.parametrize("length", [3, 15, 16, 17])
def test_lengths_beside_a_vectors(length):
    assert_matches_formula("compiled", target=length, source=length, causal=True, mask="right", **FLOAT32)
    assert_matches_formula("compiled", target=length, source=40, mask="left", weights="token", **FLOAT32)


@pytest.mark.parametrize("kept", [0, 1 << 30])
@pytest.mark.parametrize("threads", [1, 2])
def test_any_division_of_the_work_gives_the_same(kept, threads, monkeypatch):
    """Also with the probabilities computed again in the backward pass, and on more than one thread."""
    monkeypatch.setattr(module, "KEPT_BYTES", kept)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    for separate in (False, True):
        options = {"mask": "full", "weights": "token", "separate_keys": separate, "batch": 5}
        assert_matches_formula("compiled", target=70, source=70, causal=True, **options, **FLOAT32)
        assert_matches_formula("compiled", target=21, source=9, **options, **FLOAT32)


@pytest.mark.parametrize("most", [0, 1 << 30])
def test_probabilities_are_kept_where_there_is_room(most, monkeypatch):
    monkeypatch.setattr(module, "KEPT_BYTES", most)
    q, kept = torch.randn(1, 2, 200, 4, requires_grad=True), []

    def noted(saved):
        kept.append(saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(noted, lambda saved: saved):
        softmax_attention(q, q, q, backend="compiled")
    assert (max(kept) >= 2 * 200 * 200) == (most > 0)


@settings(max_examples=60, deadline=None)
@given(shape=shapes())
def test_random_shapes(shape):
    assert_matches_formula("compiled", **shape, **FLOAT32)


def test_softmax_over_the_whole_range_of_scores():
    q = torch.linspace(-60, 60, 400).view(1, 1, 400, 1)
    k = torch.linspace(-1.5, 1.5, 90).view(1, 1, 90, 1)
    identity = torch.eye(90).view(1, 1, 90, 90)
    got = softmax_attention(q, k, identity, backend="compiled")
    want = torch.softmax(q.double() @ k.double().transpose(2, 3), -1)
    # The scores themselves are rounded: half a unit of up to 90 is 4e-6 of a probability.
    assert ((got - want).abs() / want.clamp(min=1e-30)).max() < 1e-5
    torch.testing.assert_close(got.sum(-1), torch.ones(1, 1, 400), rtol=0, atol=1e-6)


def test_what_is_not_finite_is_not_hidden():
    q, k, v = (torch.randn(1, 1, 20, 4) for _ in range(3))
    for spoiled in (float("nan"), float("inf"), float("-inf")):
        broken = q.clone()
        broken[0, 0, 7, 0] = spoiled
        out = softmax_attention(broken, k, v, backend="compiled")
        want = softmax_attention(broken, k, v, backend="reference")
        assert torch.equal(out.isnan(), want.isnan())
        assert out[0, 0, 7].isnan().all() and out.isnan().sum() == 4


def test_a_score_of_minus_infinity_has_no_weight():
    q, k, v = (torch.tensor(numbers).view(1, 1, -1, 1) for numbers in ([-2.0], [3e38, 1.0], [10.0, 20.0]))
    assert softmax_attention(q, k, v, backend="compiled").item() == 20


def masks(place, shape, p, causal):
    """0 and 1/(1-p), as the backend draws them after ``torch.manual_seed(5)``: for each branch, or for their sum."""
    batch, heads, length, _ = shape
    zeros = torch.zeros(*shape)
    identity = torch.eye(length).expand(batch, heads, length, length)
    uniform = softmax_attention(zeros, zeros, identity, causal=causal, backend="reference")
    found = []
    for weights in ((1.0, 0.0), (0.0, 1.0)) if place == "branches" else ((0.5, 0.5),):
        torch.manual_seed(5)
        options = {"dropout": p, "dropout_on": place, "causal": causal, "backend": "compiled"}
        dropped = sum_of_softmaxes((zeros, zeros), zeros, identity, weights, **options)
        found.append(torch.where(uniform > 0, dropped / uniform, 0.0).double().round(decimals=4))
    return found


@pytest.mark.parametrize("place", ["branches", "combined"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kept", [0, 1 << 30])
def test_gradients_with_dropout(place, causal, kept, monkeypatch):
    """With its own masks in the float64 formula, output and gradients are the same."""
    monkeypatch.setattr(module, "KEPT_BYTES", kept)
    p, shape = 0.2, (2, 3, 70, 4)
    drawn = masks(place, shape, p, causal)
    assert all(set(mask.unique().tolist()) == {0.0, 1.25} for mask in drawn)
    generator = torch.Generator().manual_seed(0)
    leaves = [random_heads(generator, *shape, dtype=torch.float32)[0] for _ in range(4)]
    leaves += [torch.randn(3, generator=generator).requires_grad_() for _ in range(2)]
    torch.manual_seed(5)
    got = dual_softmax(*leaves, dropout=p, dropout_on=place, causal=causal, backend="compiled")
    q, q_neg, k, v, a, b = (leaf.double() for leaf in leaves)
    future = torch.ones(70, 70, dtype=torch.bool).triu(1) & causal
    both = [torch.softmax((x @ k.transpose(2, 3) / 2).masked_fill(future, -1e9), -1) for x in (q, q_neg)]
    if place == "branches":
        both = [probabilities * mask for probabilities, mask in zip(both, drawn, strict=True)]
    total = a.view(-1, 1, 1) * both[0] - b.view(-1, 1, 1) * both[1]
    want = (total if place == "branches" else total * drawn[0]) @ v
    upstream = torch.randn(want.shape, generator=generator, dtype=torch.float64)
    for ours, theirs in zip(
        [got, *torch.autograd.grad(got, leaves, upstream.float())],
        [want, *torch.autograd.grad(want, leaves, upstream)],
        strict=True,
    ):
        assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max().clamp(min=1)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_falls_on_each_weight_by_itself(p):
    """Rate, and independence of neighbours in a row, of rows, heads, branches and calls: within five deviations."""
    drops = [(mask == 0).double() for mask in masks("branches", (4, 4, 96, 2), p, False)]
    torch.manual_seed(6)
    other = torch.eye(96).expand(4, 4, 96, 96)
    zeros = torch.zeros(4, 4, 96, 2)
    drops.append((softmax_attention(zeros, zeros, other, dropout=p, backend="compiled") == 0).double())
    count = drops[0].numel()
    for drop in drops:
        assert abs(drop.mean() - p) < 5 * (p * (1 - p) / count) ** 0.5
    first = drops[0]
    pairs = [(first, other) for other in drops[1:]]
    for axis, step in itertools.product((1, 2, 3), (1, 2, 3)):
        size = first.shape[axis] - step
        if size > 0:
            pairs.append((first.narrow(axis, 0, size), first.narrow(axis, step, size)))
    for one, two in pairs:
        together = ((one - p) * (two - p)).mean() / (p * (1 - p))
        assert abs(together) < 5 / one.numel() ** 0.5


def test_other_dtypes_are_left_to_another_backend():
    q, k, v = (torch.randn(1, 2, 9, 4, dtype=torch.float64) for _ in range(3))
    want = softmax_attention(q, k, v, backend="materialised")
    assert torch.equal(softmax_attention(q, k, v, backend="compiled"), want)


@pytest.mark.parametrize("content", [None, b"", b"no library", b"\x7fELF" + bytes(200)])
def test_a_library_that_is_not_there_or_broken_is_done_without(content, another, monkeypatch):
    if content is not None:
        another.write_bytes(content)
    assert library.load() is None
    q, k, v = (torch.randn(2, 2, 130, 4) for _ in range(3))
    want = softmax_attention(q, k, v, causal=True, backend="materialised")
    torch.testing.assert_close(softmax_attention(q, k, v, causal=True, backend="compiled"), want, rtol=0, atol=0)
    seen = {}
    monkeypatch.setattr(functional, "choose_backend", lambda _, **known: seen.update(known) or "batched")
    softmax_attention(q, k, v, causal=True)
    assert seen["compiled"] is False


def test_a_library_that_gives_other_numbers_is_not_used(another, tmp_path, monkeypatch):
    source = tmp_path / "attention.c"
    source.write_text(library.SOURCE.read_text(encoding="utf-8").replace("1.0f / 24", "1.1f / 24"), encoding="utf-8")
    monkeypatch.setattr(library, "SOURCE", source)
    assert "does not work" in library.build()
    assert library.load() is None


def test_a_library_that_was_changed_after_it_was_built_is_not_used(another, compiled_library):
    assert library.c_library.build("int one(void) { return 1; }", another) is None
    assert library.c_library.is_whole(another)
    another.write_bytes(Path(compiled_library._name).read_bytes())  # it works, but is not what was built
    assert not library.c_library.is_whole(another)
    assert library.load() is None
    another.with_name(f"{another.name}.sha256").write_bytes(b"\xff")  # its sum is damaged
    assert not library.c_library.is_whole(another)


def test_building_says_what_became_of_it(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(library.c_library.shutil, "which", lambda name: None)
        assert library.build(tmp_path / "a.so").startswith("no C compiler: ")
    with monkeypatch.context() as patch:
        patch.setattr(library, "SOURCE", tmp_path / "attention.c")
        (tmp_path / "attention.c").write_text("this is no C", encoding="utf-8")
        assert "failed" in library.build(tmp_path / "a.so")
    assert "cannot be written" in library.build(tmp_path / "attention.c" / "a.so")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attention.c"]


def test_the_library_is_of_this_source_and_this_processor(monkeypatch):
    names = set()
    for capability in ("AVX2", "AVX512", "DEFAULT"):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda capability=capability: capability)
        names.add(PATH().name)
    assert len(names) == 3
    monkeypatch.setattr(library.hashlib, "sha256", lambda text: hashlib_of(text + b" "))
    assert PATH().name not in names


PATH = library.path  # as it is outside of these tests
hashlib_of = library.hashlib.sha256


def test_the_command_builds_it_and_measures(another, capsys, monkeypatch):
    monkeypatch.setattr(calibration, "main", lambda: "measured")
    runpy.run_module("gpam.attention.backends", run_name="__main__")
    said, measured = capsys.readouterr().out.splitlines()
    assert said.startswith("compiled attention: ") and another.is_file() and measured == "measured"


def test_a_second_derivative_through_rows_that_are_apart_is_refused_too():
    """Such rows are copied, and the copies are what is kept."""
    q, k, v = (torch.randn(2, 2, 4, 6, requires_grad=True) for _ in range(3))
    out = softmax_attention(*(tensor.transpose(2, 3) for tensor in (q, k, v)), backend="compiled")
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="a second derivative"):
        torch.autograd.grad(grad.square().sum(), q)


def test_a_forked_process_has_threads_of_its_own(monkeypatch):
    """With those of its parent, which it does not have, it would wait for ever."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    tensors = [torch.randn(2, 2, 9, 4) for _ in range(3)]
    wanted = softmax_attention(*tensors, backend="compiled")
    child = multiprocessing.get_context("fork").Process(target=_same, args=(tensors, wanted), daemon=True)
    child.start()
    child.join(timeout=300)
    assert child.exitcode == 0


def _same(tensors, wanted):
    raise SystemExit(not torch.equal(softmax_attention(*tensors, backend="compiled"), wanted))
