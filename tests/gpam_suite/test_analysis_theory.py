"""Hulls, collapse by depth, and what is kept as JSON."""

import json
import math

import numpy as np
import pytest
from omegaconf import OmegaConf
from runs import composed, places, tiny

from gpam import UsageError
from gpam_suite.inside import depth
from gpam_suite.inside.analyse import analyse
from gpam_suite.inside.hulls import VALUES, analyse_hulls, region
from gpam_suite.records import store


def inside(corners, point):
    """Whether ``point`` lies left of every edge of a counter-clockwise polygon."""
    edges = np.roll(corners, -1, axis=0) - corners
    to = np.asarray(point) - corners
    return (edges[:, 0] * to[:, 1] - edges[:, 1] * to[:, 0] >= -1e-9).all()


@pytest.mark.parametrize(("pos", "neg"), [(0, 0), (0.5, 0.5), (1, 1), (1, 0.5), (1, 2)])
def test_region_holds_every_output_and_no_smaller_one_does(pos, neg):
    (corners, _), draw, values = region(pos, neg), np.random.default_rng(0), np.array(VALUES)
    reached = np.full(len(corners), -np.inf)
    outward = np.stack([np.roll(corners, -1, axis=0) - corners], 0)[0] @ np.array([[0, -1], [1, 0]])
    for sharpness in (1.0, 60.0):
        for _ in range(100):
            positive, negative = (np.exp(sharpness * draw.normal(size=3)) for _ in range(2))
            output = ((1 + pos) * positive / positive.sum() - neg * negative / negative.sum()) @ values
            assert inside(corners, output)
            reached = np.maximum(reached, outward @ output)
    assert reached == pytest.approx((outward * corners).sum(1), abs=0.2)  # sharp scores come to every edge


def test_areas(tmp_path):
    """A sum of a triangle scaled by s and its mirror image scaled by t has s^2 + 4 s t + t^2 times its area."""
    (_, triangle), (x, y) = region(0, 0), np.array(VALUES).T
    assert triangle == pytest.approx(abs((x[1] - x[0]) * (y[2] - y[0]) - (x[2] - x[0]) * (y[1] - y[0])) / 2)
    found = store.read(analyse_hulls(tmp_path))
    assert [entry["area_ratio"] for entry in found["hulls"]] == pytest.approx([1, 5.5, 13])
    assert [entry["area_ratio"] for entry in found["output_space"]] == pytest.approx([4, 8.25, 13, 18.25, 24])


def test_numbers_keep_six_digits_and_what_is_not_finite_is_null(tmp_path):
    path = store.write(tmp_path / "a.json", {"a": [1.23456789e-7, math.nan, (1, True)], "b": {1: math.inf, "c": "x"}})
    written = json.loads(path.read_text())
    assert len(written.pop("sha256")) == 64
    assert store.read(path) == written == {"a": [1.23457e-7, None, [1, True]], "b": {"1": None, "c": "x"}}
    assert store.read(tmp_path / "none.json") is None
    path.write_text("{")
    with pytest.raises(UsageError, match="delete it and make it again"):
        store.read(path)


def test_collapse_by_depth_is_measured_at_each_depth(tmp_path, monkeypatch):
    """In both networks, of softmax and two pairs of lambdas; where both are 0 daGPAM is softmax."""

    def of_a_small_text(*words):
        return tiny(tmp_path, *(word for word in words if not word.startswith("experiment=")))

    monkeypatch.setattr(depth, "composed", of_a_small_text)
    words = ["parts=[depth]", "layers=[0,1,2]", "depth_seeds=[1,2]", "lambda_neg=0", "lambda_pos=[0,1]"]
    (path,) = analyse(composed(*places(tmp_path), *words, root="analyse"))
    networks = store.read(path)["networks"]
    for network, (softmax, same, other) in networks.items():
        assert [row["model"] for row in (softmax, same, other)] == ["softmax", "dagpam", "dagpam"]
        assert [len(seed["residual"]) for seed in softmax["seeds"]] == [3, 3]
        for one, two in zip(softmax["seeds"], same["seeds"], strict=True):
            assert all(two[name] == pytest.approx(one[name], rel=1e-4) for name in one)
        assert softmax["seeds"][0] != softmax["seeds"][1]
        as_softmax = other["seeds"][0]["residual"] == pytest.approx(softmax["seeds"][0]["residual"], rel=1e-4)
        assert as_softmax == (network == "attention")  # twice softmax, and there each layer is normalised
    alone = networks["attention"][0]["seeds"][0]["residual"]
    assert alone[2] < alone[1] < alone[0]


def test_depth_is_measured_again_where_another_is_asked(tmp_path):
    found = {"experiment": "e", "lambda_neg": 1.0, "layers": [0, 1], "seeds": [1]}
    store.write(store.path_of(tmp_path, "depth"), found | {"networks": {"attention": [{"lambda_pos": 0.5}]}})
    asked = {"depth_experiment": "e", "lambda_neg": 1.0, "layers": [0, 1], "depth_seeds": [1], "lambda_pos": [0.5]}
    assert depth.is_analysed(tmp_path, OmegaConf.create(asked))
    for change in (
        {"depth_experiment": "f"},
        {"lambda_neg": 0.0},
        {"layers": [0]},
        {"depth_seeds": [1, 2]},
        {"lambda_pos": []},
    ):
        assert not depth.is_analysed(tmp_path, OmegaConf.create(asked | change))
