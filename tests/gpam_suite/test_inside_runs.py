"""``make analyse`` and ``make perturb`` on a trained run: numbers, figures, page; what they say where they cannot."""

import json
import math
import shutil

import pytest
import torch
from record_factory import make_record, painted, store
from runs import composed, places, run_here, tiny

from gpam import UsageError
from gpam.attention import Site
from gpam.attention import build as built
from gpam_suite.config.compose import folder_of
from gpam_suite.inside.analyse import analyse
from gpam_suite.inside.depth import _attention_only
from gpam_suite.inside.perturb.perturb_runs import perturb
from gpam_suite.records import store as kept
from gpam_suite.records.folder import read_record
from gpam_suite.records.lines import read_history
from gpam_suite.report.page import build
from gpam_suite.report.panels import theory
from gpam_suite.report.panels.runs import _numbers, inside_runs
from gpam_suite.stats.aggregate import read_aggregates


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The results folder of a tiny daGPAM language model that was looked at and read perturbed input, the run's own
    folder, and the files that were written."""
    base = tmp_path_factory.mktemp("analyse")
    cfg = tiny(base, "model=dagpam_trainable")
    run_here(cfg)
    inside = composed(*places(base), "parts=[hulls,runs]", "texts.lm=2", "only=local_lm", root="analyse")
    noise = composed(*places(base), "rates=[0,0.1,0.5]", "texts.blocks=5", "only=local_lm", root="perturb")
    return base / "results", folder_of(cfg), analyse(inside) + perturb(noise) + build(base / "results")


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
    results, folder, written = finished
    names = {path.relative_to(results).as_posix() for path in written}
    own = [f"{kind}/runs/local_lm/dagpam_trainable-default/{folder.name}.json" for kind in ("analysis", "perturbed")]
    assert {"README.md", "analysis/hulls.json", *own} <= names
    assert {f"figures/{name}.svg" for name in ("local_lm-inside", "local_lm-perturbed", "analysis-hulls")} <= names
    page = (results / "README.md").read_text(encoding="utf-8")
    for path in (path for path in names if path.endswith(".svg")):
        assert f"]({path})" in page
    numbers = [(results / name).read_text(encoding="utf-8") for name in own]
    assert str(results.parent) not in "".join([*numbers, page])
    found = json.loads(numbers[1])
    assert found["config_hash"] == folder.name.rpartition("-")[2] and found["texts"] == 5
    assert len(list((results / "perturbed").rglob("*"))) == 4  # three folders and one file, nothing half written


def test_pages_are_made_again_from_the_numbers_alone(finished, tmp_path):
    results, _, written = finished
    again = tmp_path / "results"
    shutil.copytree(results, again, ignore=shutil.ignore_patterns("checkpoints", "figures", "tables", "README.md"))
    build(again)
    for path in written:
        if path.suffix in (".svg", ".md"):
            assert (again / path.relative_to(results)).read_bytes() == path.read_bytes(), path.name


def test_captions_say_data_model_seeds_and_command(finished):
    results, *_ = finished
    (aggregate,) = read_aggregates(results)
    inside = inside_runs(results, aggregate)
    # four measures of the stack, three of weights, the lemmas, gradients of three maps, two lambdas and their sum
    assert len([axes for axes in painted(inside) if axes.get_visible()]) == 4 + 3 + 4 + 3 + 3
    for plot in [inside, *theory.plots(results)]:
        for word in ("Data: ", "Model", "Seeds: ", "Made by `python scripts/"):
            assert word in plot.caption, plot.name


def test_what_was_done_is_kept_and_a_lost_checkpoint_is_named(finished, tmp_path, caplog):
    results, folder, _ = finished
    caplog.set_level("INFO")
    copy = tmp_path / "results"
    shutil.copytree(results, copy, ignore=shutil.ignore_patterns("figures", "tables"))
    looked, noisy = (next((copy / kind).rglob(f"{folder.name}.json")) for kind in ("analysis", "perturbed"))

    def again(root, *words):
        return {"analyse": analyse, "perturb": perturb}[root](
            composed(*places(results.parent), f"results={copy}", *words, root=root)
        )

    assert again("analyse", "parts=[runs]", "texts.lm=1") == [looked]  # fewer texts than before
    assert again("analyse", "parts=[runs]", "texts.lm=2") == [looked]
    kept.write(looked, kept.read(looked) | {"alignment": {"asked": {}}})  # pictures of other sentences
    assert again("analyse", "parts=[runs]", "texts.lm=2") == [looked]
    before = looked.stat().st_mtime_ns
    caplog.clear()
    dropped = ["kinds=[dropped]", "rates=[0,0.5]", "texts.blocks=2"]
    assert again("analyse", "parts=[runs]", "texts.lm=2") == [] and "done before" in caplog.text
    assert again("perturb", *dropped) == [noisy]  # other settings than those of before
    found = kept.read(noisy)
    caplog.clear()
    assert again("perturb", *dropped) == [] and "done before" in caplog.text
    assert again("perturb", *dropped, "again=true") == [noisy] and kept.read(noisy) == found
    shutil.rmtree(copy / folder.relative_to(results) / "checkpoints")
    for root, words in (("analyse", ["parts=[runs]", "again=true"]), ("perturb", ["seed=2"])):
        caplog.clear()
        assert again(root, *words) == [] and "its checkpoint is not here" in caplog.text
    assert looked.stat().st_mtime_ns == before and kept.read(noisy) == found  # what was found stays


def test_numbers_stand_at_their_module(tmp_path):
    """Of heads their mean; where a mechanism does not stand, nothing."""
    paths = ["decoder.layers.0.self_attn", "decoder.layers.0.encoder_attn", "decoder.layers.1.self_attn"]
    lambdas = {"lambda_pos": (1.0, 2.0), "lambda_neg": (3.0, 4.0)}
    heads = [(f"{name}/{paths[2]}/{head}", own) for name, both in lambdas.items() for head, own in enumerate(both)]
    made = make_record(learned_scalars=dict(heads)) | {"attention_modules": dict.fromkeys(paths, "DaGPAM")}
    (record,) = store(tmp_path, made)
    modules = {path: {"negative_mass": [0.1, 0.3]} for path in paths[1:]}
    found = {panel.title: numbers for panel, numbers in _numbers(record, {"modules": modules}).items()}
    nan = math.nan
    assert found[r"$\lambda_+$"] == pytest.approx([nan, 1.5, nan], nan_ok=True)
    assert found[r"Sum of a row, $1 + \lambda_+ - \lambda_-$"] == pytest.approx([nan, -1.0, nan], nan_ok=True)
    assert found["Share of negative weight"] == pytest.approx([nan, 0.2, 0.2], nan_ok=True)
    modules[paths[2]]["negative_mass"][0] = None  # of a head without a row to look at
    assert "Share of negative weight" not in {panel.title for panel in _numbers(record, {"modules": modules})}


def test_runs_with_nothing_to_look_at_are_named(tmp_path, caplog):
    protocol = {"unit": "answer", "decoding": "given", "length": 16, "split": "test", "checkpoint": "best"}
    record = make_record(experiment="e", protocol=protocol, metrics={"test_accuracy": 30.0})
    store(tmp_path / "results", record | {"task": "recall"})
    assert analyse(composed(*places(tmp_path), "parts=[runs]", root="analyse")) == []
    assert perturb(composed(*places(tmp_path), root="perturb")) == []
    assert "which has nothing to look at here" in caplog.text
    assert "only language models and translation of sentences" in caplog.text
    store(tmp_path / "results", make_record(experiment="recurrent") | {"attention_modules": {}})
    assert analyse(composed(*places(tmp_path), "parts=[runs]", "only=recurrent", root="analyse")) == []
    assert "a network without attention" in caplog.text


@pytest.mark.parametrize("other", [{"config_hash": "00000000"}, {"checkpoint_sha256": "0" * 64}])
def test_an_analysis_of_another_run_is_neither_shown_nor_kept(finished, tmp_path, other):
    """One of another configuration, or of the same one whose folder was deleted and trained again."""
    results, folder, *_ = finished
    copy = tmp_path / "results"
    shutil.copytree(results, copy)
    path = next((copy / "analysis").rglob(f"{folder.name}.json"))
    kept.write(path, {**kept.read(path), **other})
    (aggregate,) = read_aggregates(copy)
    titles = [axes.get_title() for axes in painted(inside_runs(copy, aggregate)) if axes.get_visible()]
    assert titles[:5] == ["Gradient, query", "Gradient, key", "Gradient, value", r"$\lambda_+$", r"$\lambda_-$"]
    words = composed(*places(results.parent), f"results={copy}", "parts=[runs]", "texts.lm=2", root="analyse")
    assert analyse(words) == [path] and analyse(words) == []


@pytest.mark.parametrize(
    ("root", "word", "sentence"),
    [
        ("analyse", "parts=runs", "parts: got 'runs', wanted a list, as in parts=[runs]"),
        ("analyse", "parts=[]", "parts: got none, wanted some of hulls, depth, runs"),
        ("analyse", "pairs=null", "pairs: got None, wanted a mapping"),
        ("analyse", "pairs.de-en=[[Hallo.]]", "pairs.de-en: got ['Hallo.'], wanted two texts"),
        ("analyse", "threads=0", "threads: got 0, wanted a whole number of at least 1"),
        ("analyse", "texts.lm=0", "texts.lm: got 0"),
        ("analyse", "lambda_neg=abc", "lambda_neg: got 'abc', wanted a number"),
        ("analyse", "lambda_pos=[]", "lambda_pos: got none, wanted numbers, as in lambda_pos=[1,2]"),
        ("analyse", "depth_seeds=[]", "depth_seeds: got none, wanted numbers, as in depth_seeds=[1,2]"),
        ("analyse", "layers=[0]", "layers: got [0], wanted at least one above 0"),
        ("perturb", "kinds=[]", "kinds: got none, wanted some of characters"),
        ("perturb", "kinds=dropped", "kinds: got 'dropped', wanted a list, as in kinds=[dropped]"),
        ("perturb", "rates=0.1", "rates: got 0.1, wanted a list, as in rates=[0.1]"),
        ("perturb", "rates=[0.1]", "rates: got [0.1], wanted 0 and different numbers above it"),
        ("perturb", "rates=[0,0.1,0.1]", "rates: got"),
        ("perturb", "rates=[0,1.5]", "rates: got"),
        ("perturb", "rates=[0,much]", "rates: got"),
        ("perturb", "texts.blocks=0", "texts.blocks: got 0"),
        (
            "analyse",
            "depth_experiment=nmt_laptop",
            "got 'nmt_laptop', wanted that of a pre-LN",
        ),
        ("perturb", "only=local_ml", "did you mean 'local_lm'?"),
    ],
)
def test_a_mistake_is_one_sentence(finished, root, word, sentence):
    with pytest.raises(UsageError) as error:
        {"analyse": analyse, "perturb": perturb}[root](composed(*places(finished[0].parent), word, root=root))
    assert sentence in str(error.value) and "\n" not in str(error.value)


# --------------------------------------------------------------------------------------------------- made-up numbers


def _stream(level):
    return {
        "residual": [0.8, level],
        "cosine": [0.2, 1 - level],
        "stable_rank": [4, 2],
        "effective_rank": [9, 5 + level],
    }


def test_attention_alone_is_its_formula_layer_by_layer():
    """By head and row, with the weights drawn in the same order."""
    width, heads, options = 8, 2, {"lambda_pos": 0.3, "lambda_neg": 0.6}
    mechanism = built("dagpam", Site(width, heads), options).double()
    x = torch.randn(5, width, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = _attention_only(x, mechanism, 2, seed=3)
    torch.manual_seed(3)
    wanted = [x / (x**2).mean() ** 0.5]
    for _ in range(2):
        w_q, w_k, w_v, w_o = (torch.empty(width, width, dtype=torch.float64) for _ in range(4))
        for weight, gain in ((w_q, 0.5**0.5), (w_k, 0.5**0.5), (w_v, 0.5**0.5), (w_o, 1.0)):
            torch.nn.init.xavier_uniform_(weight, gain)
        y = torch.zeros(5, width, dtype=torch.float64)
        for head in range(heads):
            own = slice(4 * head, 4 * head + 4)
            q, k, v = ((wanted[-1] @ weight)[:, own] for weight in (w_q, w_k, w_v))
            positive = (q @ k.T / 2).softmax(-1)
            negative = (-q.clamp(min=0) @ k.T / 2).softmax(-1)  # W_Q^- begins at -I
            y[:, own] = (1.3 * positive - 0.6 * negative) @ v
        y = y @ w_o
        wanted.append(y / (y**2).mean() ** 0.5)
    torch.testing.assert_close(found, wanted)


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
