"""``make analyse``: numbers, figures, the report's section; and what it says where it cannot."""

import json
import shutil

import pytest
from record_factory import add_history, make_record, painted, store
from runs import TINY_LM, composed, places, write_text

from gpam import UsageError
from gpam_suite.config.compose import folder_of
from gpam_suite.inside import store as kept
from gpam_suite.inside.analyse import analyse
from gpam_suite.inside.runs import analyse_runs
from gpam_suite.records.folder import append_history, read_history, read_record
from gpam_suite.report.page import build
from gpam_suite.report.panels import initialisation, runs, scatter, theory
from gpam_suite.report.plotting import render
from gpam_suite.run import run
from gpam_suite.stats.aggregate import read_aggregates


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The results folder of a tiny daGPAM language model, looked at, and the configuration it was looked at with."""
    base = tmp_path_factory.mktemp("analyse")
    text = write_text(base / "text")
    command = "command='python scripts/train.py model=dagpam_trainable'"
    cfg = composed(*TINY_LM, *places(base), f"dataset.folder={text}", "model=dagpam_trainable", command)
    run(cfg)
    own = composed(*places(base), "parts=[hulls,runs]", "texts.lm=2", "only=local_lm", root="analyse")
    return base / "results", folder_of(cfg), own, analyse(own) + build(base / "results")


def test_training_left_its_histories(finished):
    _, folder, *_ = finished
    rows = {
        split: [row for row in read_history(folder) if row["split"] == split]
        for split in ("gradient", "scalar", "train")
    }
    assert [row["update"] for row in rows["gradient"]] == [row["update"] for row in rows["scalar"]] == [1, 2, 3, 4]
    for row, train in zip(rows["gradient"], rows["train"], strict=True):
        norms = [value for name, value in row.items() if "/" in name]
        assert len(norms) == 2 * 4  # two layers: query, key, value and negative query
        assert 0 < sum(norm**2 for norm in norms) < train["gradient_norm"] ** 2 * (1 + 1e-3)  # a part of all parameters
    record = read_record(folder)
    assert set(record["learned_scalars"]) == {
        f"{name}/decoder.layers.{layer}.self_attn" for name in ("lambda_pos", "lambda_neg") for layer in (0, 1)
    }
    middle = sorted(row["query/decoder.layers.1.self_attn"] for row in rows["gradient"])[1:3]
    assert record["gradient_norms"]["query/decoder.layers.1.self_attn"] == pytest.approx(sum(middle) / 2)


def test_numbers_figures_and_page(finished):
    results, folder, _, written = finished
    names = {path.relative_to(results).as_posix() for path in written}
    analysis = f"analysis/runs/local_lm/dagpam_trainable-default/{folder.name}.json"
    assert {"README.md", "analysis/hulls.json", analysis} <= names
    for name in ("collapse", "gradients", "gradients-by-layer", "learned-scalars", "attention-decoder", "lemmas"):
        assert f"figures/local_lm-{name}.svg" in names
    assert {"figures/analysis-hulls.svg", "figures/local_lm-maps-dagpam_trainable.svg"} <= names
    page = (results / "README.md").read_text(encoding="utf-8")
    for path in (path for path in names if path.endswith(".svg")):
        assert f"]({path})" in page
    assert str(results) not in (results / analysis).read_text(encoding="utf-8") + page


def test_pages_are_made_again_from_the_numbers_alone(finished, tmp_path):
    results, _, _, written = finished
    again = tmp_path / "results"
    shutil.copytree(results, again, ignore=shutil.ignore_patterns("checkpoints", "figures", "tables", "README.md"))
    build(again)
    for path in written:
        if path.suffix in (".svg", ".md"):
            assert (again / path.relative_to(results)).read_bytes() == path.read_bytes(), path.name


def test_captions_say_data_model_seeds_and_what_looked_and_the_page_has_each_command_once(finished):
    results, *_ = finished
    (aggregate,) = read_aggregates(results)
    plots = runs.plots(results, aggregate) + theory.plots(results)
    assert len(plots) == 9
    for plot in plots:
        for word in ("Data: ", "Model", "Seeds: "):
            assert word in plot.caption, plot.name
        drawn_from_histories = plot.name in ("gradients", "gradients-by-layer", "scalars")
        assert ("Made by `python scripts/analyse.py" in plot.caption) != drawn_from_histories, plot.name
    page = (results / "README.md").read_text(encoding="utf-8")
    for command in {record["command"] for record in aggregate.records}:
        assert page.count(command) == 1


def test_what_was_looked_at_is_kept_and_a_lost_checkpoint_is_named(finished, tmp_path, caplog):
    results, folder, own, _ = finished
    caplog.set_level("INFO")
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    settings = (copy, own.paths, own.texts, None)
    path = next((copy / "analysis").rglob(f"{folder.name}.json"))
    before = path.stat().st_mtime_ns
    assert list(analyse_runs(*settings, again=False)) == []
    assert path.stat().st_mtime_ns == before
    assert "done before" in caplog.text
    shutil.rmtree(copy / folder.relative_to(results) / "checkpoints")
    assert list(analyse_runs(*settings, again=True)) == []
    assert "its checkpoint is not here" in caplog.text
    assert path.stat().st_mtime_ns == before  # what was found before stays


def test_an_analysis_of_another_configuration_is_not_shown(finished, tmp_path):
    results, folder, *_ = finished
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    path = next((copy / "analysis").rglob(f"{folder.name}.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "config_hash": "00000000"}))
    (aggregate,) = read_aggregates(copy)
    assert {plot.name for plot in runs.plots(copy, aggregate)} == {
        "gradients",
        "gradients-by-layer",
        "learned-scalars",
    }


@pytest.mark.parametrize(
    ("override", "sentence"),
    [("parts=[run]", "did you mean 'runs'?"), ("texts.lm=0", "texts.lm: got '0'")],
)
def test_a_mistake_is_one_sentence(tmp_path, override, sentence):
    with pytest.raises(UsageError) as error:
        analyse(composed(*places(tmp_path), override, root="analyse"))
    assert sentence in str(error.value)


# ------------------------------------------------------------------------------------------- made-up numbers, and pages


def _stream(level):
    return {
        "residual": [0.8, level],
        "cosine": [0.2, 1 - level],
        "stable_rank": [4, 2],
        "effective_rank": [9, 5 + level],
    }


_LITTLE = 1e-5


def _look_of(record, level):
    """An analysis as ``analysis/runs`` keeps it, of one layer of two heads."""
    module = {"role": "decoder", "layer": 0, "shown": "all", "output": {"cosine": 0.9}, "row_sum": [1.0, 1.0]}
    module |= {"negative_mass": [0.0, 0.1], "entropy": [1.0, 2.0], "entropy_uniform": [2.5], "first": [0.1, 0.2]}
    module |= {"first_uniform": [0.1], "quantiles": [-0.1, 0, 0, 0.1, 0.1, 0.2, 0.5, 0.9, 1.1]}
    lemma = {"holds": 1.0, "assumption": 0.0, "tightness": 1e5, "tightness_before": 100.0, "jacobian_pos": 0.9}
    if record["model"] == "dagpam":
        lemma |= {"jacobian_neg": 0.9, "opposition_cosine": -0.5, "opposition_distance": 0.8}
        lemma |= {"query_neg_distance": 0.1, "gain": 2.0}
    path = "decoder.layers.0.self_attn"
    facts = {key: record[key] for key in ("experiment", "task", "model", "seed", "config_hash")}
    found = {
        "streams": {"decoder": _stream(level)},
        "modules": {path: module},
        "lemmas": {path: lemma},
        "gradients": {},
    }
    return {**facts, **found}


@pytest.fixture
def made_up(tmp_path):
    """Three seeds of softmax and daGPAM whose residual is larger and whose perplexity is lower by construction, by all
    but the same in each seed."""
    runs = [
        make_record(
            model=model,
            seed=seed,
            value=30.0 - better * (1 + _LITTLE * seed) + 0.01 * seed,
            gradient_norms={
                f"{kind}/decoder.layers.0.self_attn": 1.0 + better * (1 + _LITTLE * (seed - 2)) + 0.001 * seed
                for kind in ("query", "key", "value")
            },
        )
        for model, better in (("softmax", 0.0), ("dagpam", 1.0))
        for seed in (1, 2, 3)
    ]
    for record in store(tmp_path, *runs):
        level = 0.3 if record["model"] == "softmax" else 0.5 + _LITTLE * (record["seed"] - 2)
        level -= 0.01 * record["seed"]
        kept.write(kept.path_of_run(tmp_path, record), _look_of(record, level))
        add_history(record, record.headline)
        for update in (1, 100):
            row = {f"{kind}/decoder.layers.0.self_attn": 1.0 / update for kind in ("query", "key", "value")}
            append_history(record.folder, {"update": update, "split": "gradient", **row})
    return tmp_path


def test_scatter_has_every_run(made_up):
    (aggregate,) = read_aggregates(made_up)
    (plot,) = scatter.plots(made_up, [aggregate])
    (points,) = scatter.points(kept.read_runs(made_up, aggregate.records), aggregate).values()
    assert sorted((point.model, point.seed, point.collapse["residual"]) for point in points) == [
        (model, seed, pytest.approx(level - 0.01 * seed, abs=2 * _LITTLE))
        for model, level in (("dagpam", 0.5), ("softmax", 0.3))
        for seed in (1, 2, 3)
    ]
    assert render(plot) == render(plot)


def test_gradients_that_are_none_or_zero_are_said_to_be(tmp_path):
    for model, norms in (("softmax", {}), ("dagpam", {"query_neg": 0.0}), ("nap", {"query_neg": 0.1})):
        (record,) = store(tmp_path, make_record(model=model))
        rows = {f"{kind}/decoder.layers.0.self_attn": norm for kind, norm in ({"query": 0.1} | norms).items()}
        append_history(record.folder, {"update": 1, "split": "gradient", **rows})
    (aggregate,) = read_aggregates(tmp_path)
    (plot,) = [plot for plot in runs.plots(tmp_path, aggregate) if plot.name == "gradients"]
    said = [[text.get_text() for text in axes.texts] for axes in painted(plot)]
    assert said == [[], ["none"], [], ["zero"], [], []]


def test_more_models_than_lines_can_tell_apart_are_a_table(made_up, monkeypatch):
    (aggregate,) = read_aggregates(made_up)
    assert "models" not in [plot.name for plot in runs.plots(made_up, aggregate)]
    monkeypatch.setattr(runs, "APART", 1)
    (plot,) = [plot for plot in runs.plots(made_up, aggregate) if plot.name == "models"]
    assert "Models: Softmax, daGPAM. Seeds: 1." in plot.caption
    svg = render(plot).decode()
    for words in ("Softmax", "daGPAM", ".29", ".49"):  # the residual behind the layer
        assert f"<!-- {words} -->" in svg


def test_depth_and_initialisation_are_drawn(tmp_path):
    seeds = [_stream(level) for level in (0.1, 0.2)]
    entries = [{"model": "softmax", "label": "softmax", "seeds": seeds}]
    entries.append({"model": "dagpam", "label": "daGPAM", "lambda_pos": 0.5, "lambda_neg": 1.0, "seeds": seeds})
    depth = {
        "experiment": "lm_laptop",
        "dataset_label": "made up",
        "lambda_neg": 1.0,
        "layers": [0, 4],
        "seeds": [1, 2],
    }
    depth |= {"tokens": 8, "width": 4, "networks": {"attention": entries, "transformer": entries}}
    kept.write(kept.path_of(tmp_path, "depth"), depth)
    module = {"role": "decoder", "layer": 0, "output": {"cosine": 0.9}}
    model = {"streams": {"decoder": _stream(0.4)}, "gradients": {"query/decoder.layers.0.self_attn": 0.1}}
    shown = {"silent": {"shown": "none"}, "partial": {"shown": "part", "negative_mass": [0.1, 0.3]}}
    models = {
        name: {"label": name, **model, "modules": {"decoder.layers.0.self_attn": {**module, **own}}}
        for name, own in shown.items()
    }
    initial = {"task": "lm", "experiment": "lm_laptop", "dataset_label": "made up", "seed": 1, "models": models}
    kept.write(kept.path_of(tmp_path, "initialisation-lm"), initial)
    plots = theory.plots(tmp_path) + initialisation.plots(tmp_path)
    assert [plot.name for plot in plots] == ["depth", "initialisation-lm"]
    svg = render(plots[1]).decode()
    for words in ("silent (no weights)", "partial *", ".20"):
        assert f"<!-- {words} -->" in svg
