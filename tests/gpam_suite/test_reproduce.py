"""What `make reproduce-lm`, `make reproduce-nmt` and `make sweep-lambda` do, on a few updates of tiny models."""

import argparse
import csv
import io
import os
import subprocess
import sys
import zipfile

import pytest
from archives import iwslt_files, packed
from omegaconf import OmegaConf
from runs import start_here, write_text

from gpam_suite.common.places import ROOT
from gpam_suite.records.folder import read_records
from gpam_suite.run import processes

sys.path.append(str(ROOT / "scripts"))
import reproduce as script

SIZES = ("layers=1", "embed_dim=16", "ffn_embed_dim=16", "attention_heads=2")
SHORT = [
    "tracking.mode=disabled",
    "fairseq.optimization.max_update=2",
    "fairseq.dataset.max_tokens=256",
    "fairseq.dataset.validate_interval_updates=2",
    "preprocessing.bpe_size=300",
    *(f"fairseq.model.decoder_{size}" for size in SIZES),
]
ENCODER = [f"fairseq.model.encoder_{size}" for size in SIZES]


@pytest.fixture
def reproduce(monkeypatch, capsys, command):
    """``reproduce(*words)``: the exit code, what was printed, and what was said on stderr, all in this process but for
    the scripts named ``apart``."""
    said, started = [], script.call

    def called(*words, apart=()):
        def call(name, *own):
            if name in apart:
                return started(name, *own)
            code, _, sentence = command(name, *own)
            said.append(sentence)
            return code

        monkeypatch.setattr(script, "call", call)
        monkeypatch.setattr(processes, "_start", start_here)
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *map(str, words)])
        code = script.main()
        last = capsys.readouterr()
        return code, last.out, "".join([*said, last.err])

    return called


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--scale", "lptop", "lm"], "unknown SCALE 'lptop'; did you mean 'laptop'?"),
        (["--scale", "laptop", "--sweep", "nmd"], "sweep-lambda: unknown TASK 'nmd'; did you mean 'nmt'?"),
        (["--scale", "paper", "nmt"], "SCALE=paper needs"),
        (["--scale", "laptop", "--models", "softmx", "lm"], "did you mean 'softmax'?"),
        (["--scale", "laptop", "--seeds", "1,x", "lm"], "SEEDS: got 'x'"),
        (["--scale", "laptop", "--sweep", "--models", "nap", "lm"], "MODELS: got 'nap', wanted none, as a sweep"),
        (["--scale", "laptop", "--jobs", "0", "lm"], "JOBS: got '0'"),
        (["--scale", "laptop", "--models", "lstm", "lm"], "unknown model 'lstm'"),
        (["--scale", "laptop", "lm", "experiment_name=mine"], "wanted RESULTS=FOLDER for a table of its own"),
        (["--scale", "laptop", "lm", "seed=4"], "EXTRA: got 'seed=4', wanted no seed there: SEEDS says it"),
        (["--scale", "laptop", "lm", "paths.results=mine"], "wanted RESULTS=FOLDER for a table of its own"),
        (["--scale", "laptop", "--results", "results", "lm"], "RESULTS: got 'results', which is what is published"),
        (["--scale", "laptop", "--results", ".", "lm"], "RESULTS: got '.', whose README.md is another page, wanted a"),
        (["--scale", "laptop", "lm", "seed"], "unknown option 'seed', wanted KEY=VALUE"),
    ],
)
def test_mistakes_are_one_sentence(reproduce, words, sentence):
    code, _, said = reproduce(*words)
    assert code == 2 and sentence in said and len(said.splitlines()) == 1


def test_a_part_that_was_killed_is_no_success(tmp_path, monkeypatch):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "killed.py").write_text("import os; os.kill(os.getpid(), 9)")
    monkeypatch.setattr(script, "ROOT", tmp_path)
    assert script.call("killed.py") == 128 + 9


def test_it_says_what_it_would_do_before_anything_is_installed():
    own_library_only = [sys.executable, "-I", "-S", str(ROOT / "scripts" / "reproduce.py")]
    said = subprocess.check_output([*own_library_only, "--scale", "laptop", "--announce", "lm"], text=True)
    assert said.startswith("lm_laptop: language modelling, SCALE=laptop") and said.count("\n") == 1
    assert "softmax, dagpam, 3 seed(s)" in said


def test_multi30k_trains_what_its_plan_compares(monkeypatch, reproduce):
    monkeypatch.setattr(script, "visible_gpus", lambda: 0)
    code, said, _ = reproduce("--scale", "small", "--announce", "nmt")
    assert code == 0 and "softmax, dagpam_trainable, softmax_scaled, 3 seed(s)" in said


def test_a_sweep_costs_what_its_members_cost(monkeypatch, reproduce):
    """Softmax and four times two pairs of lambdas, whatever is published of a larger grid."""
    monkeypatch.setattr(script, "cost", lambda experiment, runs, jobs: f"{runs} runs of {experiment}")
    for words, runs in (([], 9), (["--seeds", "1,2, 1"], 18)):
        code, said, _ = reproduce("--scale", "laptop", "--sweep", "--announce", *words, "lm")
        assert code == 0 and said.endswith(f"; {runs} runs of lm_laptop_lambda\n")


def test_data_of_ones_own_are_prepared(monkeypatch):
    called = []
    monkeypatch.setattr(script, "call", lambda *words: called.append(words) or 1)
    asked = argparse.Namespace(task="lm", sweep=False, results="r", models="softmax", seeds="1")
    own = ["hydra.searchpath=[file://own]", "dataset=local_lm", "++dataset.folder=x"]
    script.reproduce(asked, "laptop", 0, 1, [*own, "model.lambda_neg=1"])
    assert called == [("prepare.py", "experiment=lm_laptop", "paths.results=r", *own)]


def test_language_models_side_by_side_end_in_a_table(tmp_path, monkeypatch, reproduce):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["--scale", "laptop", "--results", tmp_path, "--jobs", "2", "--models", "softmax,dagpam", "--seeds", "1"]
    own = ["dataset=local_lm", f"dataset.folder={write_text(tmp_path / 'text')}", f"paths.data={tmp_path}/data"]
    code, printed, said = reproduce(*words, "lm", *SHORT, *own, apart=("train.py",))
    assert code == 0, said
    records = read_records(tmp_path)
    assert sorted((record["model"], record["seed"], record["status"]) for record in records) == [
        ("dagpam", 1, "finished"),
        ("softmax", 1, "finished"),
    ]
    assert "| softmax | 1 |" in printed
    for kind in ("md", "csv"):
        assert (tmp_path / "tables" / f"lm_laptop.{kind}").is_file()
    assert (tmp_path / "README.md").is_file()


def test_the_sweep_has_softmax_beside_it_and_every_pair(tmp_path, monkeypatch):
    """What is started; trainings are as above, and the plot is held by the tests of figures."""
    called = []
    monkeypatch.setattr(script, "call", lambda *words: called.append(words) or 0)
    monkeypatch.setattr(sys, "argv", ["x", "--scale", "laptop", "--results", str(tmp_path), "--sweep", "lm", *SHORT])
    assert script.main() == 1  # there is no table of them
    first, second = ([word for word in words if "=" in word] for words in called if words[0] == "train.py")
    assert first[-2:] == ["model=softmax", "seed=1"] and second[-2:] == ["sweep=lambda", "seed=1"]
    assert called[0][0] == "prepare.py" and called[-1] == ("tabulate.py", str(tmp_path))
    params = OmegaConf.load(ROOT / "configs" / "sweep" / "lambda.yaml").hydra.sweeper.params
    assert params == {"model.lambda_neg": "0,0.25,0.5,1", "model.lambda_pos": "0.5,1"}


@pytest.fixture
def one_gpu(tmp_path, monkeypatch):
    """A machine whose driver lists one GPU."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho 'GPU 0: Test Laptop GPU (UUID: 1)'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(script, "torch_sees_a_gpu", lambda: True)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


@pytest.mark.parametrize(("chosen", "seen"), [("", 0), ("-1", 0), ("0,-1,1", 1), ("0,1", 1)])
def test_gpus_that_are_hidden_do_not_count(one_gpu, monkeypatch, chosen, seen):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert script.visible_gpus() == seen


def test_a_gpu_that_torch_cannot_use_is_said_before_anything_is_prepared(one_gpu, monkeypatch, reproduce):
    monkeypatch.setattr(script, "torch_sees_a_gpu", lambda: False)
    monkeypatch.setattr(script, "call", lambda *_: pytest.fail("prepared"))
    code, _, said = reproduce("lm")
    assert code == 2 and said.startswith("reproduce: the driver lists 1 GPU, and torch can use none")


@pytest.mark.parametrize("task", ["lm", "nmt"])
def test_what_no_run_has_measured_is_said_to_be_unknown(one_gpu, reproduce, task):
    code, said, _ = reproduce("--announce", "--scale", "paper", task)
    assert code == 0
    assert f"{task}_paper" in said and "3 seed(s)" in said
    assert f"its cost is not measured yet; after make setup, make plan EXPERIMENT={task}_paper" in said


def test_minutes_are_those_of_the_published_runs():
    with (ROOT / "results" / "runs.csv").open(newline="") as file:
        seconds = [float(run["train_seconds"]) for run in csv.DictReader(file) if run["experiment"] == "lm_laptop"]
    for runs, jobs, after_another in ((6, 2, 3), (1, 64, 1), (5, 4, 2)):
        total = f"about {after_another * sum(seconds) / len(seconds) / 60:.0f} minutes"
        assert total in script.cost("lm_laptop", runs, jobs)


@pytest.fixture
def paper(one_gpu, tmp_path, monkeypatch, reproduce):
    """`make reproduce-... SCALE=paper` with one GPU, a mirror and no network: ``paper(task, *words)``."""
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    monkeypatch.setenv("GPAM_OFFLINE", "1")
    monkeypatch.setenv("GPAM_MIRROR", str(mirror))
    words = ["--scale", "paper", "--results", tmp_path / "results", "--models", "softmax", "--seeds", "1"]
    return lambda *more: reproduce(*words, *more, f"paths.data={tmp_path}/data")


@pytest.mark.parametrize(
    ("task", "archive"), [("lm", "wikitext-103/wikitext-103-v1.zip"), ("nmt", "iwslt14.de-en/de-en.tgz")]
)
def test_the_papers_scale_without_a_network_says_what_is_missing(paper, task, archive):
    """It gets as far as the download: no mistake of the configuration comes before."""
    code, _, said = paper(task)
    assert code == 2
    (line,) = [line for line in said.splitlines() if line.startswith("prepare.py: ")]
    assert f"{archive} could not be had (" in line and "not asked, paths.offline is set" in line
    assert line.endswith(f"set paths.mirror to a folder that holds {archive}")


def stand_in(task, mirror):
    """A tiny archive of the form and in the place of the real one, and what has to be told of it."""
    if task == "nmt":
        path, name = mirror / "iwslt14.de-en" / "de-en.tgz", "iwslt14"
        content = packed(iwslt_files(300))
    else:
        path, name = mirror / "wikitext-103" / "wikitext-103-v1.zip", "wikitext"
        article = " \n = Dogs = \n \n a dog runs and a cat sleeps <unk> .\n \n = = Cats = = \n \n the cat runs .\n"
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for split, times in (("train", 60), ("valid", 6), ("test", 6)):
                archive.writestr(f"wikitext-103/wiki.{split}.tokens", article * times)
        content = file.getvalue()
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return [f"dataset.archives.{name}.checksums=[]", f"dataset.archives.{name}.bytes=null", "dataset.expect=null"]


@pytest.mark.parametrize("task", ["lm", "nmt"])
def test_the_papers_scale_goes_from_an_archive_to_a_table(paper, tmp_path, task):
    """The whole way of the published recipe on an archive that stands in for the real one: read, prepared, trained for
    two updates by a model of the recipe's kind made small, evaluated, written into the table."""
    words = stand_in(task, tmp_path / "mirror")
    if task == "nmt":
        words += ["preprocessing.bpe_size=60", *ENCODER]
        words += [f"dataset.corpora.train.0.lines={300 + 2 * 6}"]
        words += [f"dataset.corpora.test.{number}.lines={10 + number}" for number in range(5)]
    else:
        words += [f"fairseq.model.{key}='4,8'" for key in ("adaptive_input_cutoff", "adaptive_softmax_cutoff")]
        words += ["fairseq.task.tokens_per_sample=64", "fairseq.dataset.max_tokens=64", "evaluation.context_window=16"]
        words += ["fairseq.dataset.max_tokens_valid=64", "evaluation.max_tokens=64"]
    words += [word for word in SHORT if "bpe_size" not in word and "max_tokens" not in word]
    code, printed, said = paper(task, *words, "gpu=cpu")
    assert code == 0, said
    (record,) = read_records(tmp_path / "results")
    assert record["status"] == "finished" and record["experiment"] == f"{task}_paper"
    assert "| softmax | 1 |" in printed
