"""Compiles the Triton kernels for a Hopper GPU (compute capability 9.0), which needs none, with all that they can do
and in the sizes that they are launched in; prints the cubins' sizes, and what the widest backward passes take of the
shared memory of such a GPU and of a smaller one (8.9)."""

import inspect
import json
import sys

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gpam.attention.backends.triton import kernels_long, kernels_short

alone = "gpam.attention.backends.triton.launch" not in sys.modules
from gpam.attention.backends.triton import launch  # noqa: E402  (after the look)

FULL = {"TWO": True, "TWO_KEYS": True, "CAUSAL": True, "PADDED": True, "DROPOUT": True, "DROP_SUM": False}
FLOAT32 = ("WEIGHTS", "LSE", "DELTA")
SHARED = {90: 227 << 10, 89: 99 << 10}  # compute capability: bytes that one program may have


def compiled(kernel, dtype: str, constants: dict[str, object], warps: int = 4, stages: int = 1, arch: int = 90):
    names = list(inspect.signature(kernel.fn).parameters)
    summed = ("DQ0", "DQ1") if kernel is kernels_long.backward else ()  # atomics in float32

    def kind(name: str) -> str:
        if name in constants:
            return "constexpr"
        if name == "PADDING":
            return "*u8"
        if name.isupper():
            return "*fp32" if name in (*FLOAT32, *summed) else f"*{dtype}"
        return "fp32" if name in ("scale", "plain_scale", "dropout") else "i32"

    used = {name: value for name, value in constants.items() if name in names}
    signature = {name: kind(name) for name in names}
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in used.items()})
    options = {"num_warps": warps, "num_stages": stages}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


longest, _ = launch.SHORT[2]
found = {"delta": compiled(kernels_long.delta, "bf16", {"DV": 64, "ROWS": 64})}
for backward in (False, True):
    name = "backward" if backward else "forward"
    tiles = launch.blocks(64, torch.bfloat16, backward, SHARED[90]), launch.Blocks(longest, longest, 8, 1)
    for module, dtype, tile in zip((kernels_long, kernels_short), ("bf16", "fp16"), tiles, strict=True):
        sizes = {"D": 64, "DV": 64, "ROWS": tile.rows, "KEYS": tile.keys}
        kernel = getattr(module, name)
        found[f"{module.__name__} {name}"] = compiled(kernel, dtype, FULL | sizes, tile.warps, tile.stages)
shared = {}
for arch, most in SHARED.items():
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        tile = launch.blocks(128, dtype, True, most)
        sizes = FULL | {"D": 128, "DV": 128, "ROWS": tile.rows, "KEYS": tile.keys}
        made = compiled(kernels_long.backward, name, sizes, tile.warps, tile.stages, arch)
        shared[f"{arch} {name}"] = (made.metadata.shared, most)
sizes = {name: len(made.asm["cubin"]) for name, made in found.items()}
json.dump({"sizes": sizes, "shared": shared, "alone": alone}, sys.stdout)
