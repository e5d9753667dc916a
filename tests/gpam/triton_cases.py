"""The cases of the Triton kernels: arguments of the formula test, dtype, tolerance, and whether rows count as short."""

SHAPES = (
    {"target": 40, "source": 40, "causal": True, "heads": 2},
    {"target": 33, "source": 50, "mask": "full", "weights": "token", "heads": 2},
    {"target": 45, "source": 45, "mask": "left", "causal": True, "weights": "row", "layout": "bhnd", "heads": 2},
    {"target": 50, "source": 20, "separate_keys": True, "value_dim": 24, "dim": 20, "mask": "right", "heads": 2},
    {"target": 1, "source": 35, "weights": "scalar", "layout": "btc"},
)
WIDE = tuple(
    {"target": 36, "source": 36, "causal": True, "dim": dim, "value_dim": dim, "batch": 1, "heads": 1}
    for dim in (64, 80, 96, 128)
)
TOLERANCES = {"float32": 5e-6, "float16": 5e-3}
BOTH = (True, False)
CASES = [
    *((shape, "float32", TOLERANCES["float32"], short) for shape in SHAPES for short in BOTH),
    *((shape, "float16", TOLERANCES["float16"], short) for shape, short in zip(SHAPES[:2], BOTH, strict=True)),
    *((shape, "float32", TOLERANCES["float32"], True) for shape in WIDE),
    (WIDE[2], "float16", TOLERANCES["float16"], False),
]
DROPOUT_CASES = [
    (place, causal, causal == (place == "branches")) for place in ("branches", "combined") for causal in BOTH
]
