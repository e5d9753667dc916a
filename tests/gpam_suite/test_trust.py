"""A stranger's configuration is data: it makes no object, reads no secret, starts nothing."""

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from runs import call, composed, tiny_words

from gpam.errors import UsageError
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.config.trust import guarded_composition

TOKEN = "0123456789abcdef0123456789abcdef0123face"
LAUNCHERS = ("joblib", "submitit_local", "submitit_slurm")


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("+hydra.callbacks.x={_target_:os.mkdir,path:was_here}", r"hydra\.callbacks\.x\._target_"),
        ("hydra.launcher._target_=os.mkdir", r"hydra\.launcher\._target_"),
        ("hydra.sweeper._target_=subprocess.Popen", r"hydra\.sweeper\._target_"),
        ("+hydra.launcher.x={_target_:os.mkdir,path:was_here}", r"hydra\.launcher\.x\._target_"),
        ("+hydra.launcher.setup=[touch was_here]", r"hydra\.launcher\.setup\.0"),
        ("+hydra.job_logging.handlers.x={class:os.mkdir,path:was_here}", r"hydra\.job_logging\.handlers\.x\.class"),
        ("hydra.job_logging.handlers.console.stream='ext://antigravity'", r"handlers\.console\.stream"),
        ("+hydra.job.env_set={LD_PRELOAD:evil.so}", r"hydra\.job\.env_set\.LD_PRELOAD"),
        (
            "+hydra.callbacks.x={_target_:hydra._internal.core_plugins.basic_sweeper.BasicSweeper}",
            r"callbacks\.x\._target_",
        ),
        ("+hydra.job_logging.handlers.x={class:logging.FileHandler,filename:was_here}", r"handlers\.x\.class"),
        ("+hydra.job_logging.formatters.x={class:os.mkdir}", r"formatters\.x\.class"),
        ("+hydra.job_logging.handlers.x={level:'cfg://handlers.console'}", r"handlers\.x\.level"),
        ("++fairseq.common.log_file=was_here", r"fairseq\.common\.log_file"),
        ("++fairseq.common.user_dir=somewhere", r"fairseq\.common\.user_dir"),
        ("+hydra.launcher.comment='a\ntouch was_here'", r"hydra\.launcher\.comment.*U\+000A"),
        ("experiment_name='a\rtouch was_here'", r"experiment_name.*U\+000D"),
        ("+hydra.launcher.additional_parameters={wrap:'touch was_here'}", r"additional_parameters\.wrap"),
        ("hydra.searchpath=[pkg://antigravity]", r"hydra\.searchpath"),
        ("+model._target_=os.system", r"model\._target_"),
        ("+dataset.deep=[{_target_:os.system}]", r"dataset\.deep\.0\._target_"),
        ("+anything._target_='${experiment_name}'", r"anything\._target_"),
    ],
)
def test_a_configuration_names_no_code(override, where):
    with guarded_composition(), pytest.raises(UsageError, match=rf"{where}.*a configuration may not") as refused:
        composed(override)
    assert "\n" not in str(refused.value)


def test_a_file_of_hydras_logging_cannot_make_objects(tmp_path):
    """Python's logging calls what stands under ``()``; the command line's grammar has no such key, a file has."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "evil.yaml").write_text(
        "# @package _global_\nhydra: {job_logging: {handlers: {x: {'()': os.mkdir, path: was_here}}}}\n"
    )
    with guarded_composition(), pytest.raises(UsageError, match=r"handlers\.x\.\(\)"):
        composed(f"hydra.searchpath=[file://{tmp_path}]", "experiment=evil")


def test_the_shipped_configurations_pass():
    """Experiments do in their own test."""
    with guarded_composition():
        for choice in ("sweep=lambda", *map("launcher={}".format, LAUNCHERS)):
            composed(choice)


@pytest.mark.parametrize(
    "text",
    [
        "${oc.env:WANDB_API_KEY}",
        "${oc.env:WANDB_API_KEY,x}",
        "${oc.env:SLURM_JWT}",
        "${oc.env:${name}}",
        "${oc.decode:${oc.env:WANDB_API_KEY}}",
        "${oc.decode:'${name2}'}",
        "${oc.decode:'\\${oc.env:WANDB_API_KEY}'}",
    ],
)
def test_no_configuration_reads_a_token(text, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", TOKEN)
    monkeypatch.setenv("SLURM_JWT", TOKEN)
    cfg = OmegaConf.create({"a": text, "name": "WANDB_API_KEY", "name2": "${oc.env:WANDB_API_KEY}"})
    try:
        assert TOKEN not in str(cfg.a)
    except OmegaConfBaseException as error:
        assert "is not read" in str(error)
        assert TOKEN not in str(error)


def test_places_are_still_read(monkeypatch):
    monkeypatch.setenv("SCRATCH", "somewhere")
    cfg = OmegaConf.create({"a": "${oc.env:SCRATCH}/x", "b": "${oc.env:GPAM_NONE,null}", "c": "${oc.env:GPAM_NONE}"})
    assert cfg.a == "somewhere/x"
    assert cfg.b is None
    with pytest.raises(OmegaConfBaseException, match="no variable GPAM_NONE"):
        cfg.c  # noqa: B018


def test_a_stored_configuration_is_not_trusted_either():
    """``config.yaml`` of a run's folder, which evaluation and export read."""
    stored = OmegaConf.create(OmegaConf.to_container(composed(), resolve=True))
    stored.model._target_ = "os.system"
    with pytest.raises(UsageError, match=r"model\._target_"):
        fairseq_config(stored)


@pytest.mark.parametrize(
    "word", ["+hydra.callbacks.x={_target_:os.mkdir,path:was_here}", "--experimental-rerun=was_here.pickle"]
)
def test_the_command_refuses_with_one_sentence(word, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, said = command("train.py", word)
    assert (code, len(said.splitlines())) == (2, 1)
    assert not list(tmp_path.iterdir())


def test_a_members_configuration_of_a_multirun_is_refused_too(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "evil.yaml").write_text(
        "# @package _global_\nhydra: {callbacks: {x: {_target_: os.mkdir, path: was_here}}}\n"
    )
    words = ["-m", "experiment=lm_laptop,evil", f"hydra.searchpath=[file://{tmp_path}]", "seed=-1"]
    code, _, said = command("train.py", *words)
    assert code == 2 and "hydra.callbacks.x._target_" in said
    assert not (tmp_path / "was_here").exists()


def test_a_token_of_wandbs_is_in_no_file_of_a_run(tmp_path):
    """A whole run with wandb writing offline, a token in the environment and one in ``~/.netrc``."""
    home, other = tmp_path / "home", TOKEN[::-1]
    home.mkdir()
    (home / ".netrc").write_text(f"machine api.wandb.ai login user password {other}\n")
    (home / ".netrc").chmod(0o600)
    work = tmp_path / "work"
    work.mkdir()
    ended = call("train.py", *tiny_words(work, "tracking.mode=offline"), cwd=work, HOME=str(home), WANDB_API_KEY=TOKEN)
    assert ended.returncode == 0, ended.stderr
    (work / "printed").write_text(ended.stdout + ended.stderr)
    files = [path for path in work.rglob("*") if path.is_file()]
    assert [path for path in files if path.suffix == ".wandb"], "wandb wrote nothing: the test shows nothing"
    secret = [TOKEN.encode(), other.encode()]
    assert [path for path in files if any(token in path.read_bytes() for token in secret)] == []
