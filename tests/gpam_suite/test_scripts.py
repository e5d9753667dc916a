"""The scripts as a user calls them: exit codes, and one sentence instead of a traceback."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from runs import call, places, start_here, tiny_words

from gpam_suite.common.lock import locked
from gpam_suite.common.places import ROOT
from gpam_suite.records import archives
from gpam_suite.records.folder import read_records
from gpam_suite.run import processes
from gpam_suite.run.command_line import _meant_key, guarded
from gpam_suite.tools import doctor

OWN = sys.stdlib_module_names


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["dataset=python_doc"], "unknown dataset 'python_doc'; did you mean 'python_docs'?"),
        (["seeed=1"], "did you mean 'seed'?"),
        (["model=dagpam", "model.lamda_neg=1"], "did you mean 'model.lambda_neg'?"),
        (["fairseq.model.dropout=1.5"], "fairseq.model.dropout: got 1.5, wanted a number from 0 to below 1"),
        (["fairseq.optimization.lr=[0.1,-1]"], "fairseq.optimization.lr: got -1.0, wanted numbers above 0"),
        (["fairseq.optimization.max_update=-5"], "fairseq.optimization.max_update: got -5, wanted at least 1"),
        (["fairseq.optimization.lr=[]"], "fairseq.optimization.lr: got an empty list, wanted numbers above 0"),
        (
            ["fairseq.optimization.update_freq=[0]"],
            "fairseq.optimization.update_freq: got 0, wanted numbers of at least 1",
        ),
        (["fairseq.common.log_interval=0"], "fairseq.common.log_interval: got 0, wanted at least 1"),
        (["fairseq.checkpoint.no_save=true"], "wanted false: what is saved is evaluated"),
        (["fairseq.checkpoint.no_last_checkpoints=true"], "wanted false: a killed run goes on from the last one"),
        (["fairseq.checkpoint.no_save_optimizer_state=true"], "wanted false: a killed run goes on with it"),
        (["fairseq.task.tokens_per_sample=0"], "fairseq.task.tokens_per_sample: got 0, wanted at least 1"),
        (["fairseq.dataset.num_workers=-1"], "wanted at least 0"),
        (["fairseq.dataset.max_tokens=0"], "fairseq.dataset.max_tokens: got 0, wanted at least 1"),
        (["fairseq.dataset.batch_size=0"], "fairseq.dataset.batch_size: got 0, wanted at least 1"),
        (["fairseq.dataset.required_batch_size_multiple=0"], "wanted at least 1"),
        (["fairseq.optimizer.adam_betas='0.9'"], "adam_betas: got 0.9, wanted two numbers from 0 to below 1"),
        (["fairseq.optimizer.adam_betas='(0.9, 1.5)'"], "adam_betas: got (0.9, 1.5), wanted two numbers"),
        (["launcher=joblib"], "launcher=joblib starts the members of a multirun: add -m, or leave it out"),
        (["-m", "launcher=joblib", "hydra.launcher.n_jobs=0"], "n_jobs: got 0, wanted at least 1"),
        (["fairseq.optimization.stop_min_lr=0"], "wanted below 0: how long a run trains is max_update"),
        (["fairseq.checkpoint.write_checkpoints_asynchronously=true"], "a killed run would find nothing to go on from"),
        (["fairseq.checkpoint.optimizer_overrides=lr"], "would count where a killed run goes on, and only there"),
        (["fairseq.checkpoint.continue_once=nowhere.pt"], "got nowhere.pt, wanted none: finetune_from_model starts"),
        (["fairseq.ema.store_ema=true"], "an average would be kept, and never evaluated"),
        (["fairseq.dataset.gen_subset=valid"], "got valid, wanted 'test'"),
        (["fairseq.generation.beam=10"], "fairseq.generation is not read here; how a run is evaluated is evaluation."),
        (
            ["fairseq.dataset.validate_after_updates=500"],
            "got 500, wanted at most 100 (fairseq.checkpoint.save_interval",
        ),
        (["fairseq.optimization.stop_time_hours=2"], "wanted 0: how far a run came would depend on how fast"),
        (["fairseq.optimization.max_epoch=2"], "wanted 0: how long a run trains is max_update"),
        (["fairseq.checkpoint.checkpoint_suffix=-x"], "got -x, wanted no suffix"),
        (
            ["fairseq.dataset.validate_after_updates=601"],
            "got 601, wanted at most 600 (fairseq.optimization.max_update): the best checkpoint comes from validation",
        ),
        (
            ["fairseq.dataset.validate_interval_updates=150", "fairseq.checkpoint.save_interval_updates=100"],
            "got 150, wanted a multiple of fairseq.checkpoint.save_interval_updates=100: the best of what is validated "
            "has to be on the disk",
        ),
        (["fairseq.dataset.validate_interval=1"], "got 1, wanted a multiple of fairseq.checkpoint.save_interval=1000"),
        (["paths.data=a:b"], "/a:b has a ':', which divides folders for fairseq; give another"),
        (["model=lstm"], "model=lstm has no attention, and recipe 'laptop_lm' makes a Transformer"),
        (
            ["fairseq.dataset.disable_validation=true"],
            "wanted false: curves and the best checkpoint come from validation",
        ),
        (["seed=5000000000"], "seed: got 5000000000, wanted a number below 2**31"),
        (["dataset.label=5"], "dataset.label: got '5', wanted a text"),
        (["fairseq.optimization.lrr=1"], "did you mean 'lr'?"),
        (["fairseq.model.foo=1"], "key 'model.foo': Key 'foo' not in "),
        (["fairseq.model.lr=0.1"], "did you mean 'fairseq.optimization.lr'?"),
        (["fairseq.optimizer.lr=0.1"], "fairseq.optimizer.lr: got '0.1', wanted a list"),
        (["fairseq.model.decoder_embed_dim=-16"], "decoder_embed_dim: got -16, wanted at least 1"),
        (["fairseq.task.max_target_positions=0"], "max_target_positions: got 0, wanted at least 1"),
        (
            ["fairseq.optimization.lr=0.002"],
            "fairseq.optimization.lr: got '0.002', wanted a list, as in fairseq.optimization.lr=[0.002]",
        ),
        (
            ["fairseq.model.decoder_layers=[1]"],
            "key 'model.decoder_layers': Value '[1]' of type 'ListConfig' could not be",
        ),
        (
            ["recipe=ptb_lstm", "model=lstm", "fairseq.model.dropout=much"],
            "got much, wanted a number from 0 to below 1",
        ),
        (["recipe=ptb_lstm", "model=softmax_more_heads"], "fairseq.model.decoder_attention_heads: got None, wanted"),
        (["--model", "softmax"], "got '--model', wanted model=VALUE"),
        (["--seed=2"], "got '--seed=2', wanted seed=VALUE"),
        (
            ["fairseq.model.decoder_attention_heads=3"],
            "fairseq.model.decoder_attention_heads: got 3 for decoder_embed_dim",
        ),
        (["seed"], "got 'seed', wanted KEY=VALUE"),
        (["dataset=local_lm", "dataset.folder=nowhere"], "nowhere"),
        (["models=dagpam"], "did you mean 'model'?"),
        (["model.lambda_neg=1"], "there is no option 'model.lambda_neg'; it belongs to model=dagpam or "),
        (["model=softmax,dagpam"], "for a run of each value add -m"),
        (["model=dagpam", "model.name=mine"], "model.name: got 'mine', wanted the name of a file of configs/model"),
        (["fairseq.dropout=0.1"], "Key 'dropout' not in 'FairseqConfig'; did you mean 'fairseq.model.dropout'?"),
        (["model.dropout=0.1"], "did you mean 'fairseq.model.dropout'?"),
        (["datset.name=x"], "did you mean 'dataset.name'?"),
        (["experiment=nmt_paper", "fairseq.lr_scheduler.warmup_updates=0"], "warmup_updates: got 0, wanted at least 1"),
        (
            ["~fairseq.optimization.lrr"],
            "no option 'fairseq.optimization.lrr'; did you mean 'fairseq.optimization.lr'?",
        ),
        (["-m", "hydra.launcher.n_jobs=4"], "no option 'hydra.launcher.n_jobs'; it belongs to launcher=joblib"),
        (["--cfg", "job", "-m", "seed=1,2"], "a configuration is shown of one run: leave out -m"),
        (["lr=1e-3"], "did you mean 'fairseq.optimization.lr'?"),
        (["fairseq.optimization.lr=1e-3"], "got '0.001', wanted a list, as in fairseq.optimization.lr=[0.001]"),
        (["tracking.tags=[a,1]"], "tracking.tags: got '1', wanted a text"),
        (
            ["tracking.mode=offlin"],
            "tracking.mode: got 'offlin', wanted one of auto, online, offline, disabled; did you mean 'offline'?",
        ),
        (["paths.results=/proc/results"], "set paths.results to a folder that you may write"),
        (
            ["-m", "launcher=joblib", "hydra.launcher.n_jobs=zero"],
            "hydra.launcher.n_jobs=zero: Value 'zero' of type 'str' could not be converted to Integer",
        ),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(words, sentence, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    code, _, said = command("train.py", "tracking.mode=disabled", *places(tmp_path), *words)
    assert code == 2, said
    assert sentence in said.splitlines()[-1] and said.startswith("train.py: ")
    assert not list(tmp_path.glob("results/runs/*")), "watch would count it as a run that waits"


def test_an_option_of_another_task_is_not_its_own_correction():
    assert "'evaluation.beam'" not in _meant_key("evaluation.beam", "train")
    assert _meant_key("evaluation.checkpiont", "train") == "; did you mean 'evaluation.checkpoint'?"


def test_a_mistake_ends_the_command_without_a_traceback(tmp_path):
    """In a process of its own."""
    ended = call("train.py", "model=dagpm", cwd=tmp_path)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "unknown model 'dagpm'; did you mean 'dagpam'?" in ended.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_no_processor(tmp_path, command):
    code, _, said = command("train.py", *tiny_words(tmp_path, "gpu=single"))
    wanted = "train.py: gpu=single needs a GPU, and torch sees none on this machine; set gpu=cpu"
    assert (code, said.splitlines()[-1]) == (2, wanted)
    assert not list(tmp_path.glob("results/runs/*"))


def test_a_model_of_ones_own_is_found_by_hydras_search_path(tmp_path, monkeypatch, command):
    monkeypatch.setattr(processes, "_start", start_here)
    stock = (ROOT / "configs" / "model" / "dagpam.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "my_dagpam.yaml").write_text(stock.replace("name: dagpam", "name: my_dagpam"))
    words = tiny_words(tmp_path, f"hydra.searchpath=[file://{tmp_path}/mine]")
    monkeypatch.chdir(tmp_path)
    code, _, said = command("train.py", *words, "model=my_dagpam", "model.lambda_neg=0.3")
    assert code == 0, said
    (record,) = read_records(tmp_path / "results")
    assert record.folder.parent.name == "my_dagpam-lambda_neg=0.3"
    assert f"hydra.searchpath=[file://{tmp_path}/mine]" in record["command"]
    (twin := tmp_path / "mine" / "model" / "dagpam.yaml").write_text(stock.replace("lambda_neg: ", "lambda_neg: 2"))
    code, _, said = command("train.py", *words, "model=my_dagpam")
    assert code == 2 and f"{twin} is not read, as a file of configs/ has its name" in said


def started_where_ctrl_c_is_heard(words, folder):
    """Python with ``words``, and packages of ``folder`` before all others. Where the tests were started in the
    background, they ignore Ctrl-C, and so would what they start."""
    variables = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT / 'src'}"}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=variables)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["train.py", "tabulate.py", "doctor.py", "use.py", "soak.py", "gpam_fairseq"])
def test_ctrl_c_in_the_first_second_ends_a_command_without_a_word(name, tmp_path):
    """It comes while the first package of others is imported, here an empty one that sends it to itself."""
    for foreign in ("torch", "hydra", "omegaconf", "rich", "yaml", "numpy", "fairseq"):
        (tmp_path / f"{foreign}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    words = ["-m", "gpam_fairseq", "train"] if name == "gpam_fairseq" else [str(ROOT / "scripts" / name), "x"]
    ended = started_where_ctrl_c_is_heard(words, tmp_path)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_a_program_that_imports_the_plugin_keeps_its_own_ctrl_c(tmp_path):
    """Started by ``python -m``, as the plugin's own commands are."""
    program = "sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"
    (tmp_path / "mine.py").write_text(f"import gpam_fairseq, signal, sys\n{program}\n")
    assert started_where_ctrl_c_is_heard(["-m", "mine"], tmp_path).returncode == 0


def test_a_script_of_another_tree_is_one_sentence(tmp_path):
    """Else its folder would stay on the path, where scripts/tabulate.py hides the package of that name."""
    (tmp_path / "src" / "gpam_suite").mkdir(parents=True)
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(ROOT / "scripts" / "train.py", tmp_path / "scripts")
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, env=variables)
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1
    assert f"train.py: this Python has the code of {ROOT}, and the script is of {tmp_path}" in ended.stderr


def test_every_command_imports_the_suite_before_packages_of_others():
    """Which is what lets Ctrl-C end it while they are imported."""
    for path in (ROOT / "scripts").glob("*.py"):
        words = re.findall(r"^(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        if "gpam_suite" in words:
            assert next(word for word in words if word not in OWN).startswith("gpam"), path.name


@pytest.mark.parametrize(
    ("script", "words", "sentence"),
    [
        ("plan.py", ["device=h10"], "did you mean 'h100'"),
        (
            "plan.py",
            ["model=dagpan"],
            "unknown model 'dagpan'; did you mean 'dagpam'? (wanted one of attnscale, centered,",
        ),
        ("search.py", ["trials=0"], "trials: got 0"),
        ("ngram.py", ["ngram=0"], "ngram: got 0, wanted a whole number of at least 1"),
        ("benchmark.py", ["cases=defalt"], "did you mean 'default'"),
        ("export.py", [], "run and output are wanted"),
        ("evaluate.py", ["run=."], "is not the folder of a run"),
        (
            "evaluate.py",
            ["run=runs/dagpam-lambda_pos=0,lambda_neg=1/seed1"],
            "lambda_neg=1/seed1 is not the folder of a run",
        ),
        ("analyse.py", ["parts=[run]"], "did you mean 'runs'?"),
        ("analyse.py", ["again=maybe"], "again: got 'maybe', wanted true or false"),
        ("analyse.py", ["results=null"], "results: got 'None', wanted a text"),
        ("perturb.py", ["again=no"], "again: got 'no', wanted true or false"),
        ("perturb.py", ["results=null"], "results: got 'None', wanted a text"),
        ("benchmark.py", ["output=null"], "output: got 'None', wanted a text"),
        ("benchmark.py", ["defined=null"], "defined: got None, wanted a mapping"),
        ("evidence.py", ["paths.results=null", "parts=[ptb]"], "paths.results: got 'None', wanted a text"),
        ("evidence.py", ["paths=null"], "paths.results: got 'None', wanted a text"),
        ("evidence.py", ["plan=null"], "plan: got None, wanted a mapping"),
        ("evidence.py", ["plan.ptb.multiruns=5"], "plan.ptb.multiruns: got 5, wanted a list"),
        ("search.py", ["search=null"], "search: got None, wanted a mapping"),
        ("watch.py", ["~/nowhere", "x"], f"{Path.home()}/nowhere"),
        ("compare.py", ["~/nowhere", "x"], f"A: {Path.home()}/nowhere holds no run"),
        ("use.py", ["write", "~/nowhere"], f"{Path.home()}/nowhere"),
        ("tabulate.py", ["~/nowhere"], f"no folder {Path.home()}/nowhere"),
        ("evaluate.py", ["run=anna's"], "run: anna's is not the folder of a run"),
        ("perturb.py", ["kinds=[droped]"], "kinds: got 'droped'"),
        ("perturb.py", ["results=."], "got ., which has no runs"),
        ("analyse.py", ["results=nowhere"], "got nowhere, which has no runs"),
        ("wandb_report.py", ["gpam", "x"], "got 'gpam', wanted <entity>/<project>"),
        ("publish.py", ["nowhere"], "got nowhere, wanted a results folder: one of runs, analysis, tuning is in it"),
        ("watch.py", ["nowhere", "x"], "x has begun"),
        ("soak.py", ["nonsense"], "no part 'nonsense'"),
    ],
)
def test_every_script_is_its_command(script, words, sentence, command, tmp_path, monkeypatch):
    """A mistake in each, by the sentence of the command that it stands for."""
    monkeypatch.chdir(tmp_path)
    code, _, said = command(script, *words)
    assert code == 2 and sentence in said and said.startswith(f"{script}: ") and len(said.splitlines()) == 1, said


def test_nothing_is_published_where_one_folder_is_none(tmp_path, monkeypatch, command):
    (tmp_path / "local" / "runs").mkdir(parents=True)
    monkeypatch.setattr("gpam_suite.report.publish.publish", lambda _: pytest.fail("published"))
    code, _, said = command("publish.py", tmp_path / "local", tmp_path / "nowhere")
    assert code == 2 and f"got {tmp_path}/nowhere, wanted a results folder" in said


def test_two_do_not_publish_at_once(tmp_path, monkeypatch, command):
    monkeypatch.setattr("gpam_suite.common.places.PUBLISHED", tmp_path)
    with locked(tmp_path):
        code, _, said = command("publish.py")
    assert code == 2 and f"another process is working on {tmp_path}; wait for it" in said


@pytest.mark.parametrize("script", ["analyse.py", "perturb.py"])
def test_nothing_is_looked_at_for_a_page_that_is_somebody_elses(script, tmp_path, command):
    (tmp_path / "README.md").write_text("mine", encoding="utf-8")
    code, _, said = command(script, f"results={tmp_path}")
    assert code == 2 and "README.md is not a page of results" in said
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_nothing_is_looked_at_for_an_experiment_that_is_none(tmp_path, command):
    (tmp_path / "runs").mkdir()
    code, _, said = command("analyse.py", f"results={tmp_path}", "only=lm_pbt")
    assert code == 2 and "No runs of experiment 'lm_pbt'" in said
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_no_tables_of_a_folder_that_is_not_there(tmp_path, command):
    (tmp_path / "local" / "runs").mkdir(parents=True)
    code, _, said = command("tabulate.py", tmp_path / "locl")
    assert code == 2
    assert f"no folder {tmp_path}/locl; did you mean '{tmp_path}/local'?" in said
    assert not (tmp_path / "locl").exists()


def test_a_multirun_goes_on_after_a_bad_member_and_is_logged_offline(tmp_path, monkeypatch, command):
    """Four members, of which two mistakes are told: the others finish, wandb has a run of each, the exit code is 2."""
    monkeypatch.setattr(processes, "_start", start_here)
    monkeypatch.chdir(tmp_path)
    tiny = [word.removeprefix("++") for word in tiny_words(tmp_path)]
    members = ["model=dagpam", "model.lambda_neg=0.25,much,few,0.5", "tracking.mode=offline"]
    code, told, said = command("train.py", "-m", *tiny, *members)
    assert code == 2, said
    assert "got 'much'" in said.splitlines()[-1]
    assert re.search("model.lambda_neg=few: .*got 'few'", told), told
    records = read_records(tmp_path / "results")
    assert sorted(record["options"]["lambda_neg"] for record in records) == [0.25, 0.5]
    for record in records:
        assert list(record.folder.glob("wandb/offline-run-*/*.wandb"))
        assert "paths." not in record["command"]
    assert command("tabulate.py", tmp_path / "results")[0] == 0
    assert (tmp_path / "results" / "tables" / "local_lm.md").exists()


def test_where_the_output_is_not_utf_8_the_rest_is_shown(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert guarded(lambda: print("95.13 ± 0.95", flush=True)) == 0
    assert sys.stdout.buffer.getvalue() == b"95.13 ? 0.95\n"


def test_doctor_says_what_is_here():
    report = "\n".join(doctor.lines())
    assert "fairseq works" in report and "torch" in report


def test_doctor_tries_a_gpu(monkeypatch):
    def ones(*_, **__):
        raise RuntimeError("no kernel image is available\nmore")

    here = doctor.environment.hardware() | {"gpu": "H900", "gpus": 2}
    monkeypatch.setattr(doctor.environment, "hardware", lambda: here)
    monkeypatch.setattr(torch, "ones", ones)
    (gpu,) = (line for line in doctor.lines() if "H900" in line)
    assert gpu.endswith("H900 x 2, but nothing can be computed there: no kernel image is available")


def test_an_archive_has_linked_runs_second_test_sets_and_an_experiment_called_wandb(tmp_path, command):
    for name in ("wandb/softmax/seed1/record.json", "wandb/softmax/seed1/second_test.de"):
        file = tmp_path / "elsewhere" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "runs").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/wandb/lost.json").symlink_to(tmp_path / "nowhere.json")
    (tmp_path / "elsewhere/wandb/all").symlink_to(tmp_path / "elsewhere")
    assert command("archive.py", tmp_path / "results")[0] == 0
    kept = {f"runs/wandb/softmax/seed1/{name}": b"{}" for name in ("record.json", "second_test.de")}
    assert archives.unpack(tmp_path / "results-archive.tar.xz") == kept
    (tmp_path / "elsewhere/wandb/softmax/seed1/record.json").unlink()
    code, _, said = command("archive.py", tmp_path / "results")
    assert code == 2 and "in which no run has ended" in said


def test_an_archive_of_runs_has_no_checkpoints(tmp_path, command):
    for name in ("record.json", "best.pt", "checkpoints/state.json", "wandb/run.json"):
        file = tmp_path / "results" / "runs" / "some" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    packed = tmp_path / "results" / "runs" / "other.tar.xz"
    packed.write_bytes(b"")
    code, _, said = command("archive.py", str(tmp_path / "results"))
    assert code == 2 and "of which a part is packed already (other.tar.xz)" in said  # it would be left out unsaid
    packed.unlink()
    code, *_ = command("archive.py", str(tmp_path / "results"))
    assert code == 0
    assert archives.unpack(tmp_path / "results-archive.tar.xz") == {"runs/some/record.json": b"{}"}
    shutil.rmtree(tmp_path / "results")
    assert not archives.is_file(tmp_path / "results/runs/some/record.json")  # it can be trained again
    assert archives.is_file(tmp_path / "results-archive/runs/some/record.json")
    (tmp_path / "results/runs/new").mkdir(parents=True)
    (tmp_path / "results/runs/new/record.json").write_text("{}")
    code, _, said = command("archive.py", str(tmp_path / "results"))
    assert code == 2 and "results-archive.tar.xz holds runs/some/record.json, which is not in" in said  # and stays
