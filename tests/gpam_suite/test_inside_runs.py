"""``make analyse`` and ``make perturb`` on a trained run: numbers, figures, page; what they say where they cannot."""

import dataclasses
import json
import shutil

import pytest
from record_factory import painted
from runs import TINY_LM, composed, places, write_text

from gpam import UsageError
from gpam_suite.config.compose import folder_of
from gpam_suite.inside import store as kept
from gpam_suite.inside.analyse import analyse
from gpam_suite.inside.perturb.kinds import Settings
from gpam_suite.inside.perturb.perturb_runs import perturb, perturb_runs
from gpam_suite.inside.runs import analyse_runs
from gpam_suite.records.folder import read_history, read_record, read_records
from gpam_suite.report.page import build
from gpam_suite.report.panels import runs, theory
from gpam_suite.run.run import run
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
    for name in ("collapse", "gradients-by-layer", "learned-scalars", "attention-decoder", "lemmas"):
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


def test_captions_say_data_model_seeds_and_command(finished):
    results, *_ = finished
    (aggregate,) = read_aggregates(results)
    plots = runs.plots(results, aggregate) + theory.plots(results)
    assert len(plots) == 8
    for plot in plots:
        for word in ("Data: ", "Model", "Seeds: ", "Made by `python scripts/"):
            assert word in plot.caption, plot.name


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
    assert {plot.name for plot in runs.plots(copy, aggregate)} == {"gradients-by-layer", "learned-scalars"}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [("parts=[run]", "did you mean 'runs'?"), ("texts.lm=0", "texts.lm: got 0")],
)
def test_a_mistake_is_one_sentence(tmp_path, override, sentence):
    with pytest.raises(UsageError) as error:
        analyse(composed(*places(tmp_path), override, root="analyse"))
    assert sentence in str(error.value)


# --------------------------------------------------------------------------------------------------- perturbed input


def test_perturbed_from_checkpoint_to_page(finished):
    results, folder, *_ = finished
    base = results.parent
    cfg = composed(*places(base), "rates=[0,0.1,0.5]", "texts.blocks=5", "only=local_lm", root="perturb")
    written = {path.relative_to(results).as_posix() for path in perturb(cfg) + build(results)}
    kept = f"perturbed/runs/local_lm/dagpam_trainable-default/{folder.name}.json"
    wanted = {kept, "figures/local_lm-perturbed.svg", "tables/local_lm-perturbed.md"}
    assert {*wanted, "README.md"} <= written
    page = (results / "README.md").read_text(encoding="utf-8")
    assert "](figures/local_lm-perturbed.svg)" in page and "](tables/local_lm-perturbed.md)" in page
    assert str(base) not in (results / kept).read_text() + page
    found = json.loads((results / kept).read_text())
    assert found["config_hash"] == folder.name.rpartition("-")[2] and found["texts"] == 5
    assert len(list((results / "perturbed").rglob("*"))) == 4  # three folders and one file, nothing half written


def test_perturbed_before_is_not_done_again_and_a_lost_checkpoint_loses_nothing(finished, caplog, tmp_path):
    base = finished[0].parent
    caplog.set_level("INFO")
    results, paths = tmp_path / "results", composed(*places(base), root="perturb").paths
    shutil.copytree(base / "results" / "runs", results / "runs")
    (record,) = read_records(results)

    def again(seed, **options):
        settings = {"lm": Settings(("dropped",), (0.5,), seed, texts=2)}
        return list(perturb_runs(results, [record], paths, settings, **{"again": False, **options}))

    (path,) = again(1)
    found = json.loads(path.read_text())
    assert again(1) == [] and "done before" in caplog.text
    assert again(1, again=True) == [path] and json.loads(path.read_text()) == found
    assert again(2) == [path] and json.loads(path.read_text())["settings"]["seed"] == 2
    shutil.rmtree(record.folder / "checkpoints")
    assert again(1) == [] and "its checkpoint is not here" in caplog.text
    assert json.loads(path.read_text())["settings"]["seed"] == 2
    other = dataclasses.replace(record, data={**record.data, "task": "recall"})
    assert list(perturb_runs(results, [other], paths, {}, again=True)) == []
    assert "only language models and translation of sentences" in caplog.text


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("kinds=[droped]", "kinds: got 'droped'; did you mean 'dropped'?"),
        ("kinds=[]", "kinds: got none, wanted some of characters"),
        ("rates=[0.1]", "rates: got [0.1], wanted 0 and different numbers above it"),
        ("rates=[0]", "rates: got [0]"),
        ("rates=[0,0.1,0.1]", "rates: got"),
        ("rates=[0,1.5]", "rates: got"),
        ("rates=[0,much]", "rates: got"),
        ("seed=x", "seed: got 'x'"),
        ("texts.blocks=0", "texts.blocks: got 0"),
        ("only=local_ml", "did you mean 'local_lm'?"),
    ],
)
def test_a_mistake_in_perturbing_is_one_sentence(finished, word, sentence):
    with pytest.raises(UsageError) as error:
        perturb(composed(*places(finished[0].parent), word, root="perturb"))
    assert sentence in str(error.value) and "\n" not in str(error.value)


# --------------------------------------------------------------------------------------------------- made-up numbers


def _stream(level):
    return {
        "residual": [0.8, level],
        "cosine": [0.2, 1 - level],
        "stable_rank": [4, 2],
        "effective_rank": [9, 5 + level],
    }


def test_depth_is_drawn(tmp_path):
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
    (plot,) = theory.plots(tmp_path)
    assert plot.name == "depth" and len(painted(plot)) == 6
