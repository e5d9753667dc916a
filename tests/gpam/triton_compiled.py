"""Compiles the Triton kernels for a Hopper GPU (compute capability 9.0), which needs none; prints the cubins' sizes."""

import inspect
import json
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gpam.attention.backends.triton import kernels_long, kernels_short

PLAIN = {"TWO": True, "TWO_KEYS": False, "CAUSAL": True, "PADDED": False, "DROPOUT": False, "DROP_SUM": False}
FULL = {"TWO": True, "TWO_KEYS": True, "CAUSAL": False, "PADDED": True, "DROPOUT": True, "DROP_SUM": False}
FLOAT32 = ("WEIGHTS", "LSE", "DELTA")


def compiled_bytes(kernel, dtype: str, constants: dict[str, object]) -> int:
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
    return len(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["cubin"])


sizes = {"D": 64, "DV": 64, "ROWS": 32, "KEYS": 32}
found = {"delta": compiled_bytes(kernels_long.delta, "bf16", {"DV": 64, "ROWS": 64})}
for flags, dtype, modules in ((PLAIN, "bf16", (kernels_long, kernels_short)), (FULL, "fp16", (kernels_short,))):
    for module in modules:
        for kernel in (module.forward, module.backward):
            name = f"{module.__name__.rpartition('.')[2]} {kernel.fn.__name__} {dtype}"
            found[name] = compiled_bytes(kernel, dtype, flags | sizes)
json.dump({"sizes": found, "launch": "gpam.attention.backends.triton.launch" in sys.modules}, sys.stdout)
