"""What attention can give: the convex hull of the values under softmax, a larger region under daGPAM (figures 1 and 3).

With any scores, ``P+`` and ``P-`` give any two points ``a``, ``b`` of the convex hull, so daGPAM's outputs are

    (1 + lambda+) a - lambda- b,    a, b in conv(v_1, ..., v_n)

a Minkowski sum of two scaled hulls: the convex hull of ``(1 + lambda+) v_i - lambda- v_j`` over all pairs.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import ConvexHull

from gpam_suite.records import store

VALUES = ((1.0, 0.6), (3.0, 1.0), (1.6, 2.4))
"""Three values in the plane, as in the paper's figure."""
PAIRS = ((0.0, 0.0), (0.5, 0.5), (1.0, 1.0))
"""(lambda+, lambda-) of figure 1: rows sum to 1."""
NEGATIVE = (0.0, 0.5, 1.0, 1.5, 2.0)
"""lambda- of figure 3, at lambda+ = 1: rows sum to 2 - lambda-."""


def region(lambda_pos: float, lambda_neg: float) -> tuple[np.ndarray, float]:
    """Corners ``[corners, 2]``, counter-clockwise, and area of the polygon of all outputs."""
    values = np.array(VALUES)
    points = ((1 + lambda_pos) * values[:, None] - lambda_neg * values[None, :]).reshape(-1, 2)
    hull = ConvexHull(points)
    return points[hull.vertices], hull.volume  # scipy's word for what a polygon covers


def analyse_hulls(results: Path) -> Path:
    """``<results>/analysis/hulls.json``: the regions of both figures, and their areas over the convex hull's."""
    _, convex = region(0.0, 0.0)

    def entry(lambda_pos: float, lambda_neg: float) -> dict[str, Any]:
        corners, area = region(lambda_pos, lambda_neg)
        lambdas = {"lambda_pos": lambda_pos, "lambda_neg": lambda_neg}
        return {**lambdas, "corners": corners.tolist(), "area_ratio": area / convex}

    found = {"values": VALUES, "hulls": [entry(*pair) for pair in PAIRS]}
    found["output_space"] = [entry(1.0, negative) for negative in NEGATIVE]
    return store.write(store.path_of(results, "hulls"), found)
