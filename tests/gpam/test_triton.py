"""The Triton kernels against the formula: in the interpreter on a CPU, and on a GPU where there is one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_functional import assert_matches_formula, random_heads
from triton_cases import CASES, DROPOUT_CASES, SHAPES, WIDE

from gpam.attention.functional import dual_softmax, softmax_attention, sum_of_softmaxes
from gpam.errors import UsageError

HERE = Path(__file__).parent
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(scope="module")
def interpreted():
    pytest.importorskip("triton", reason="triton is not installed: pip install -e '.[triton]'")
    ended = subprocess.run(
        [sys.executable, "triton_interpreted.py"], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("index", range(len(CASES)), ids=lambda index: "-".join(map(str, CASES[index])))
def test_output_and_gradients(interpreted, index):
    assert interpreted["formula"][index] == ""


@pytest.mark.parametrize("index", range(len(DROPOUT_CASES)), ids=lambda index: "-".join(map(str, DROPOUT_CASES[index])))
def test_dropout_follows_the_seed_and_has_its_gradient(interpreted, index):
    assert interpreted["dropout"][index] == ""


@pytest.mark.parametrize("kernel", ["short", "long"])
def test_dropout_masks(interpreted, kernel):
    """Kept with 3/4 and scaled by 4/3; the branches' masks are independent, and the combined one is one mask."""
    found = interpreted["masks"][kernel]
    assert found["values"] == [0.0, 1.0] and found["heads differ"]
    assert found["share"] == pytest.approx(0.75, abs=0.01)
    assert found["both"] == pytest.approx([1 / 16, 6 / 16, 9 / 16], abs=0.01)
    assert found["combined"] == [0.0, 2.0]


def test_kernels_compile_for_a_gpu(tmp_path):
    """Without one: forward and backward, long rows in bfloat16 and short ones in float16."""
    pytest.importorskip("triton", reason="triton is not installed: pip install -e '.[triton]'")
    variables = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    variables.pop("TRITON_INTERPRET", None)
    ended = subprocess.run(
        [sys.executable, "triton_compiled.py"], cwd=HERE, capture_output=True, text=True, check=False, env=variables
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert len(said["sizes"]) == 5 and all(size > 0 for size in said["sizes"].values())
    assert len(said["shared"]) == 4 and all(taken <= most for taken, most in said["shared"].values()), said["shared"]
    assert said["alone"]  # importing the mechanisms does not import what needs triton


def test_mistakes_are_named():
    pytest.importorskip("triton", reason="triton is not installed: pip install -e '.[triton]'")
    q = torch.zeros(1, 1, 4, 8)
    with pytest.raises(UsageError, match="needs a GPU, got tensors on the CPU"):
        softmax_attention(q, q, q, backend="triton")


def test_without_triton_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "gpam.attention.backends.triton.launch", raising=False)
    q = torch.zeros(1, 1, 4, 8)
    with pytest.raises(UsageError, match="pip install triton"):
        softmax_attention(q, q, q, backend="triton")


@gpu
@pytest.mark.parametrize("backend", ["triton", "grouped", "sdpa"])
@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 4e-2), (torch.float16, 5e-3), (torch.float32, 1e-5)])
@pytest.mark.parametrize("length, causal, padded", [(30, True, False), (300, True, False), (300, False, True)])
def test_on_a_gpu(backend, dtype, tolerance, length, causal, padded):
    """Against float64 on the same GPU, forward and all gradients."""
    if backend == "grouped" and dtype == torch.float32:
        pytest.skip("refused")
    generator = torch.Generator().manual_seed(0)
    leaves = [random_heads(generator, 2, 3, length, 64, "tbc", dtype)[0].cuda() for _ in range(4)]
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    weights = [torch.tensor([1.4, 0.9, 1.1], device="cuda").requires_grad_() for _ in range(2)]
    mask = None
    if padded:
        mask = torch.zeros(2, length, dtype=torch.bool, device="cuda")
        mask[1, length // 2 :] = True
    upstream = torch.randn(2, 3, length, 64, generator=generator).cuda()

    def numbers(name, tensors, coefficients):
        views = [tensor.permute(1, 2, 0, 3) for tensor in tensors]
        out = dual_softmax(*views, *coefficients, key_padding_mask=mask, causal=causal, backend=name)
        return [out, *torch.autograd.grad(out, [*tensors, *coefficients], upstream.to(out.dtype))]

    want = numbers("reference", *([t.detach().double().requires_grad_() for t in group] for group in (leaves, weights)))
    for ours, theirs in zip(numbers(backend, leaves, weights), want, strict=True):
        assert (ours.double() - theirs).abs().max() < tolerance * theirs.abs().max()


@gpu
@pytest.mark.parametrize("shape", [*SHAPES, *WIDE])
def test_other_shapes_on_a_gpu(shape, monkeypatch):
    """The interpreter's cases, compiled: the formula test makes its tensors on the default device."""

    def drawn_on_the_cpu(*size, **options):
        with torch.device("cpu"):
            return _cpu_randn(*size, **options).cuda()

    monkeypatch.setattr(torch, "randn", drawn_on_the_cpu)
    with torch.device("cuda"):
        assert_matches_formula("triton", dtype=torch.float16, tolerance=5e-3, **shape)


_cpu_randn = torch.randn


@gpu
def test_three_branches_are_refused():
    q = torch.zeros(1, 1, 4, 16, device="cuda")
    with pytest.raises(UsageError, match="one or two branches, got 3"):
        sum_of_softmaxes((q, q, q), q, q, (1.0, 1.0, 1.0), backend="triton")
