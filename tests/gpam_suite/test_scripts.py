"""The scripts as a user calls them: exit codes, and one sentence instead of a traceback."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from runs import TINY_LM, places, write_text

from gpam_suite.records.folder import read_records
from gpam_suite.run.command_line import run_hydra
from gpam_suite.run.run import run

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [path for path in (ROOT / "scripts").glob("*.py") if "gpam_suite" in path.read_text(encoding="utf-8")]


def call(script, *words, cwd=ROOT):
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=variables,
    )


@pytest.fixture
def own_logging():
    """Hydra sets up the root logger, whose streams are this test's: afterwards it is as it was."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["model=dagpm"], "unknown model 'dagpm'; did you mean 'dagpam'?"),
        (["dataset=python_doc"], "unknown dataset 'python_doc'; did you mean 'python_docs'?"),
        (["seeed=1"], "did you mean 'seed'?"),
        (["model=dagpam", "model.lamda_neg=1"], "did you mean 'lambda_neg'?"),
        (["model=dagpam", "model.lambda_neg=much"], "got 'much', wanted a finite number"),
        (["fairseq.optimization.lrr=1"], "did you mean 'lr'?"),
        (["fairseq.model.decoder_attention_heads=3"], "wanted a number that divides it"),
        (["seed"], "seed"),
        (["dataset=local_lm", "dataset.folder=nowhere"], "nowhere"),
        (
            ["models=dagpam"],
            "did you mean 'model'?",
        ),
        (["model.lambda_neg=1"], "there is no option 'model.lambda_neg'; it belongs to model=dagpam or "),
        (["model=softmax,dagpam"], "for a run of each value add -m"),
        (["lr=1e-3"], "did you mean 'fairseq.optimization.lr'?"),
        (["fairseq.optimization.lr=1e-3"], "got '0.001', wanted a list, as in fairseq.optimization.lr=[0.001]"),
        (
            ["tracking.mode=offlin"],
            "tracking.mode: got 'offlin', wanted one of auto, online, offline, disabled; did you mean 'offline'?",
        ),
        (["paths.results=/proc/results"], "set paths.results to a folder that you may write"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(words, sentence, tmp_path, monkeypatch, capsys, own_logging):
    """The command in this process: what is imported for it takes seconds in one of its own."""
    mode = [] if words[0].startswith("tracking") else ["tracking.mode=disabled"]
    results = [] if words[0].startswith("paths") else [f"paths.results={tmp_path}/results"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # the command sets it
    monkeypatch.setattr(sys, "argv", ["train.py", *words, *mode, *results, f"paths.data={tmp_path}/data"])
    with pytest.raises(SystemExit) as ended:
        run_hydra("train", run)
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert sentence in said.splitlines()[-1] and said.startswith("train.py: ")
    assert not list(tmp_path.glob("results/runs/*")), "watch would count it as a run that waits"


def test_a_mistake_ends_the_command_without_a_traceback(tmp_path):
    ended = call("train.py", "model=dagpm", cwd=tmp_path)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "unknown model 'dagpm'; did you mean 'dagpam'?" in ended.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_no_processor(tmp_path):
    text = write_text(tmp_path / "text")
    ended = call("train.py", *TINY_LM, *places(tmp_path), f"dataset.folder={text}", "gpu=single", cwd=tmp_path)
    assert ended.returncode == 2
    wanted = "train.py: gpu=single needs a GPU, and torch sees none on this machine; set gpu=cpu"
    assert ended.stderr.splitlines()[-1] == wanted
    assert not list(tmp_path.glob("results/runs/*"))


def test_a_model_of_ones_own_is_found_by_hydras_search_path(tmp_path):
    text = write_text(tmp_path / "text")
    stock = (ROOT / "configs" / "model" / "dagpam.yaml").read_text(encoding="utf-8")
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "my_dagpam.yaml").write_text(stock.replace("name: dagpam", "name: my_dagpam"))
    words = [*TINY_LM, *places(tmp_path), f"dataset.folder={text}", f"hydra.searchpath=[file://{tmp_path}/mine]"]
    ended = call("train.py", *words, "model=my_dagpam", "model.lambda_neg=0.3", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    (record,) = read_records(tmp_path / "results")
    assert record.folder.parent.name == "my_dagpam-lambda_neg=0.3"


@pytest.mark.parametrize("command", [*sorted(path.name for path in SCRIPTS), "gpam_fairseq"])
def test_ctrl_c_in_the_first_second_ends_a_command_without_a_word(command, tmp_path):
    """It comes while the first package of others is imported, here an empty one that sends it to itself."""
    for name in ("torch", "hydra", "omegaconf", "rich", "yaml", "numpy", "fairseq"):
        (tmp_path / f"{name}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests were started in the background
    words = ["-m", "gpam_fairseq", "train"] if command == "gpam_fairseq" else [str(ROOT / "scripts" / command), "x"]
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, env=variables)
    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")


def test_no_tables_of_a_folder_that_is_not_there(tmp_path):
    (tmp_path / "local" / "runs").mkdir(parents=True)
    ended = call("tabulate.py", str(tmp_path / "locl"))
    assert ended.returncode == 2
    assert f"no folder {tmp_path}/locl; did you mean '{tmp_path}/local'?" in ended.stderr
    assert not (tmp_path / "locl").exists()


def test_a_multirun_goes_on_after_a_bad_member_and_is_logged_offline(tmp_path):
    """Three members, one of them a mistake: the others finish, wandb has a run of each, the exit code is 2."""
    text = write_text(tmp_path / "text")
    tiny = [word.removeprefix("++") for word in TINY_LM if not word.startswith("tracking")]
    ended = call(
        "train.py",
        "-m",
        *tiny,
        *places(tmp_path),
        f"dataset.folder={text}",
        "model=dagpam",
        "model.lambda_neg=0.25,much,0.5",
        "tracking.mode=offline",
        cwd=tmp_path,
    )
    assert ended.returncode == 2, ended.stderr
    assert "got 'much'" in ended.stderr.splitlines()[-1]
    records = read_records(tmp_path / "results")
    assert sorted(record["options"]["lambda_neg"] for record in records) == [0.25, 0.5]
    for record in records:
        assert list(record.folder.glob("wandb/offline-run-*/*.wandb"))
        assert "paths." not in record["command"]
    tabulated = call("tabulate.py", str(tmp_path / "results"))
    assert tabulated.returncode == 0, tabulated.stderr
    assert (tmp_path / "results" / "tables" / "local_lm.md").exists()


def test_prepare_and_doctor_run(tmp_path):
    text = write_text(tmp_path / "text")
    words = ["dataset=local_lm", f"dataset.folder={text}", "preprocessing.bpe_size=60", *places(tmp_path)]
    assert call("prepare.py", *words, cwd=tmp_path).returncode == 0
    again = call("prepare.py", *words, cwd=tmp_path)
    assert "reusing" in again.stdout + again.stderr
    report = call("doctor.py").stdout
    assert "fairseq works" in report
    assert "torch" in report


def test_evaluate_wants_a_run(tmp_path):
    ended = call("evaluate.py", f"run={tmp_path}")
    assert ended.returncode == 2
    assert "is not a run's folder" in ended.stderr
