"""Runs the Triton kernels in Triton's interpreter, on the CPU; prints the error of every case as JSON.

A process of its own, as TRITON_INTERPRET has to be set before triton is imported. bfloat16 has no meaning there.
"""

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import test_functional as formulas
import torch
from triton_cases import CASES, DROPOUT_CASES

from gpam.attention.backends.triton import launch
from gpam.attention.functional import dual_softmax


def rows_are_short(short: bool) -> None:
    launch.SHORT = dict.fromkeys((2, 4), (128, 128) if short else (0, 0))


def error_of(case) -> str:
    """Empty, or what is wrong with the output or a gradient."""
    shape, dtype, tolerance, short = case
    rows_are_short(short)
    try:
        formulas.assert_matches_formula("triton", dtype=getattr(torch, dtype), tolerance=tolerance, **shape)
    except AssertionError as error:
        return str(error) or "assertion failed"
    return ""


def dropped(case) -> str:
    """With dropout: the seed decides, and the gradients are those of the drawn masks (by finite differences)."""
    place, causal, short = case
    rows_are_short(short)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(1, 2, 33, 4, generator=generator).requires_grad_() for _ in range(4)]
    inputs += [torch.randn(2, generator=generator).requires_grad_() for _ in range(2)]
    directions = [torch.randn(tensor.shape, generator=generator) for tensor in inputs]

    def run(seed, step=0.0):
        torch.manual_seed(seed)
        moved = [tensor + step * way for tensor, way in zip(inputs, directions, strict=True)]
        return dual_softmax(*moved, dropout=0.3, dropout_on=place, causal=causal, backend="triton")

    out = run(1)
    upstream = torch.randn(out.shape, generator=generator)
    if not torch.equal(out, run(1)) or torch.allclose(out, run(2)):
        return "the seed does not decide"
    grads = torch.autograd.grad((out * upstream).sum(), inputs)
    slope = sum(float((grad * way).sum()) for grad, way in zip(grads, directions, strict=True))
    with torch.no_grad():
        change = float(((run(1, 1e-2) - run(1, -1e-2)).double() * upstream).sum()) / 2e-2
    return "" if abs(slope - change) < 2e-3 * max(1.0, abs(change)) else f"slope {slope}, by differences {change}"


def masks() -> dict[str, object]:
    """With queries of zero and V the identity the output is the dropped probabilities themselves."""
    found = {}
    for short in (True, False):
        rows_are_short(short)
        zeros, eye = torch.zeros(4, 2, 48, 16), torch.eye(48).expand(4, 2, 48, 48)
        made = {}
        for place, second in (("branches", 0.0), ("branches", 1.0), ("combined", 1.0)):
            torch.manual_seed(5)
            made[place, second] = dual_softmax(
                zeros, zeros, zeros, eye, 1.0, -second, dropout=0.25, dropout_on=place, backend="triton"
            )
            made[place, second].mul_(48 * 0.75).round_(decimals=3)
        one, both, combined = made.values()
        found["short" if short else "long"] = {
            "values": one.unique().tolist(),
            "share": float((one > 0).double().mean()),
            "both": [float((both == value).double().mean()) for value in (0.0, 1.0, 2.0)],
            "combined": combined.unique().tolist(),
            "heads differ": not torch.equal(one[0, 0], one[0, 1]),
        }
    return found


launch.blocks = lambda *_: launch.Blocks(32, 32, 4, 1)
answers = {"formula": [error_of(case) for case in CASES], "dropout": [dropped(case) for case in DROPOUT_CASES]}
launch.blocks = lambda *_: launch.Blocks(64, 64, 4, 1)
json.dump(answers | {"masks": masks()}, sys.stdout)
