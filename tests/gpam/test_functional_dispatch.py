"""How a call is dispatched and cut: tables of pure functions."""

from types import SimpleNamespace

import pytest
import torch
from described_call import described
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close
from torch.testing._internal.two_tensor import TwoTensor

from gpam.attention import functional
from gpam.attention.backends.compiled.library import load
from gpam.attention.backends.tiling import LANE, LONG_ROWS, ROWS, chunks, row_blocks
from gpam.attention.functional import BACKENDS, choose_backend

LM = {"batch": 4, "heads": 8, "target": 512, "source": 512, "causal": True}
NMT = {"batch": 136, "heads": 8, "target": 30, "source": 30}
LAPTOP = {"batch": 100, "heads": 4, "target": 20, "source": 20, "head_dim": 32, "value_dim": 32}
LONG = {"batch": 1, "heads": 8, "target": 4096, "source": 4096, "causal": True}
FULL = {"batch": 4, "heads": 8, "target": 512, "source": 512}
GPU = {"device": "cuda"}
HALF = {"dtype": torch.bfloat16, "flash": True}


@pytest.mark.parametrize(
    "case, branches, want",
    [
        (LM, 2, "materialised"),
        (LM | {"batch": 32}, 2, "tiled"),
        (NMT, 2, "batched"),
        (NMT | {"batch": 400}, 2, "materialised"),
        (LONG, 2, "tiled"),
        (LM, 1, "materialised"),
        (NMT, 1, "batched"),
        (LAPTOP, 1, "batched"),
        (LAPTOP, 2, "batched"),
        (LAPTOP | {"batch": 200}, 2, "batched"),
        (LAPTOP | {"batch": 50, "target": 80, "source": 80}, 2, "materialised"),
        (FULL, 1, "sdpa"),
        (LONG, 1, "sdpa"),
        (FULL | {"dtype": torch.bfloat16}, 1, "materialised"),
        (FULL | {"dropout": 0.1}, 1, "materialised"),
        (LONG | {"dropout": 0.1}, 1, "tiled"),
        (FULL | {"value_dim": 128}, 1, "materialised"),
        (LM | {"compiled": True}, 2, "compiled"),
        (LM | {"compiled": True, "dropout": 0.1}, 1, "compiled"),
        (LONG | {"compiled": True}, 2, "compiled"),
        (LONG | {"compiled": True}, 1, "sdpa"),
        (NMT | {"compiled": True}, 2, "compiled"),
        (NMT | {"target": 1}, 2, "packed"),
        (NMT | GPU | {"target": 1}, 2, "packed"),
        (LM | GPU, 2, "sdpa"),
        (LM | GPU | HALF, 2, "grouped"),
        (LM | GPU | HALF | {"dropout": 0.1}, 2, "grouped"),
        (LM | GPU | HALF | {"padded": True}, 2, "sdpa"),
        (LM | GPU | HALF | {"shared_keys": False}, 2, "sdpa"),
        (LM | GPU | HALF, 1, "sdpa"),
        (LM | GPU | HALF | {"flash": False}, 2, "sdpa"),
        (LM | GPU | {"dropout": 0.1}, 2, "sdpa"),
        (LM | GPU | {"dropout": 0.1, "dropout_on": "combined"}, 2, "reference"),
        (LM | GPU | {"dropout": 0.1, "dropout_on": "combined"}, 1, "sdpa"),
    ],
)
def test_choose_backend(case, branches, want):
    known = {name: case.get(name, False) for name in ("flash", "compiled")}
    call = {name: value for name, value in case.items() if name not in known}
    assert choose_backend(described(**call, branches=branches), **known) == want


@pytest.mark.parametrize(
    "dtype, head_dim, value_dim, capability, want",
    [
        (torch.bfloat16, 64, 64, (8, 0), True),
        (torch.float16, 192, 192, (9, 0), True),
        (torch.bfloat16, 200, 200, (9, 0), False),
        (torch.bfloat16, 64, 32, (9, 0), False),
        (torch.float16, 64, 64, (7, 5), False),
        (torch.float32, 64, 64, (9, 0), False),
    ],
)
def test_where_flash_attention_runs(dtype, head_dim, value_dim, capability, want, monkeypatch):
    """PyTorch's own conditions; a GPU is not at hand here, so the tensors only say that they lie on one."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)
    values = SimpleNamespace(device=torch.device("cuda"), dtype=dtype, shape=(1, 1, 4, value_dim))
    problem = SimpleNamespace(values=values, queries=[torch.empty(1, 1, 4, head_dim)])
    assert functional._has_flash(problem) is want


def test_auto_runs_what_is_chosen(monkeypatch):
    q, k = torch.zeros(2, 3, 5, 4), torch.zeros(2, 3, 6, 4)
    v = torch.zeros(2, 3, 6, 8, dtype=torch.float32)
    seen = {}
    monkeypatch.setattr(functional, "choose_backend", lambda problem, **known: seen.update(known) or "reference")
    for name in BACKENDS:
        monkeypatch.setitem(functional._RUN, name, lambda problem, name=name: name)
    assert functional.dual_softmax(q, q, k, v, 1.0, 1.0, dropout=0.1, dropout_on="combined") == "reference"
    assert functional.dual_softmax(q, q, k, v, 1.0, 1.0, backend="tiled") == "tiled"
    assert seen == {"flash": False, "compiled": load() is not None, "fastest": ()}


@given(
    batch=st.integers(1, 9),
    heads=st.integers(1, 9),
    head_bytes=st.integers(1, 100),
    thread_bytes=st.integers(1, 400),
    threads=st.integers(1, 4),
)
def test_chunks_cover_every_head_once(batch, heads, head_bytes, thread_bytes, threads):
    parts = chunks(batch, heads, head_bytes, thread_bytes, threads)
    covered = torch.zeros(batch, heads, 1, 1)
    merged = covered.view(1, batch * heads, 1)
    for part in parts:
        part.of(covered).add_(1)
        part.of_merged(merged).add_(1)
        assert part.size <= max(heads, 2 * threads * max(1, thread_bytes // head_bytes))
    assert (covered == 2).all()


@given(target=st.integers(1, 300), source=st.integers(1, 300) | st.just(2000), causal=st.booleans())
def test_row_blocks_cover_every_row_and_every_visible_key(target, source, causal):
    source = target if causal else source
    blocks = row_blocks(target, source, causal)
    rows = sorted(row for block in blocks for row in range(block.start, block.start + block.count))
    assert rows == list(range(target))
    assert all(block.count <= (LONG_ROWS if source > 1024 else ROWS) and block.width % LANE == 0 for block in blocks)
    assert all(block.width >= (block.stop if causal else source) for block in blocks)
    assert blocks[0].width == max(block.width for block in blocks)


CORE = [torch.randn(2, 3, 6, 4, generator=torch.Generator().manual_seed(part)) for part in range(4)]  # q, q_neg, k, v


def core(*tensors):
    return functional.dual_softmax(*tensors, 1.5, 0.5, causal=True)


@pytest.mark.parametrize("how", ["real", "fake", "symbolic"])
def test_a_recorded_call_computes_anew(how):
    graph = make_fx(core, tracing_mode=how)(*CORE)
    others = [part.flip(0) for part in CORE]
    assert_close(graph(*others), core(*others))


def test_tensors_without_memory():
    with FakeTensorMode() as fake:
        assert core(*(fake.from_tensor(part) for part in CORE)).shape == CORE[0].shape


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_other_kinds_of_tensor(backend):
    """A subclass, whose numbers lie in tensors of its own, and one whose sign is still to be turned."""
    q = torch.randn(2, 3, 6, 4)
    two = TwoTensor(q, -q)
    got = functional.softmax_attention(two, two, two, backend=backend)
    assert_close(got.a, functional.softmax_attention(q, q, q))
    assert_close(got.b, functional.softmax_attention(-q, -q, -q))
    turned = functional.softmax_attention(torch._neg_view(q), q, q, backend=backend)
    assert_close(turned, functional.softmax_attention(-q, q, q))


def test_torch_func_has_every_derivative():
    """In float64, each against the one that it is made of."""
    q, *rest = (part.double() for part in CORE)
    tangent, tiny = rest[0], 1e-6

    def score(q):
        return core(q, *rest).square().sum()

    def difference(function):
        return (function(q + tiny * tangent) - function(q - tiny * tangent)) / (2 * tiny)

    plain = torch.autograd.grad(score(q.requires_grad_()), q)[0]
    q = q.detach()
    first = torch.func.grad(score)
    assert_close(first(q), plain)
    assert_close(torch.func.jvp(score, (q,), (tangent,))[1], difference(score))
    assert_close(torch.func.jvp(first, (q,), (tangent,))[1], difference(first), rtol=1e-6, atol=1e-7)
