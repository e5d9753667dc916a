"""Composed configurations: every one in configs/ is valid, identities tell runs apart, mistakes are one sentence."""

from gpam_fairseq.install import NO_ATTENTION

import pytest
from omegaconf import OmegaConf
from runs import composed

from gpam.attention import names
from gpam.attention.registry import ARGUMENTS
from gpam.errors import UsageError
from gpam_suite.common.places import CONFIGS
from gpam_suite.config.compose import check, folder_of, identity, overrides_label
from gpam_suite.config.fairseq_tree import MODEL_FACTS, fairseq_config
from gpam_suite.config.identity import config_hash
from gpam_suite.config.trust import guarded_composition
from gpam_suite.run.command_line import as_hydra_takes_it


def group(name: str) -> list[str]:
    return sorted(path.stem for path in (CONFIGS / name).glob("*.yaml"))


@pytest.mark.parametrize("experiment", group("experiment"))
def test_every_experiment_composes_and_opens_with_its_command(experiment):
    with guarded_composition():
        cfg = composed(f"experiment={experiment}")
    check(cfg)
    assert cfg.experiment_name == experiment
    lines = (CONFIGS / "experiment" / f"{experiment}.yaml").read_text(encoding="utf-8").splitlines()
    assert lines[1].startswith(("# make ", "# python scripts/"))


@pytest.mark.parametrize("model", [name for name in group("model") if name != "lstm"])  # which has recipes of its own
def test_every_model_composes_on_both_tasks(model):
    for dataset in ("python_docs", "cldr_de_en"):
        cfg = composed(f"dataset={dataset}", f"model={model}")
        check(cfg)
        assert cfg.model.name == model


def test_every_mechanism_has_a_configuration():
    """Those without the key take another's."""
    files = map(OmegaConf.load, (CONFIGS / "model").glob("*.yaml"))
    assert {file.attention for file in files if "attention" in file} == {*names(), NO_ATTENTION}


def test_no_option_of_a_mechanism_may_have_the_name_of_what_a_model_is_called_by():
    assert set(MODEL_FACTS) <= ARGUMENTS


@pytest.mark.parametrize("dataset", group("dataset"))
def test_every_data_set_has_a_recipe_of_its_name(dataset):
    given = ["dataset.source=cs", "dataset.target=en"] if dataset == "local_parallel" else []
    check(composed(f"dataset={dataset}", *given))


def test_any_recipe_goes_with_any_data_set_of_its_task():
    """Each recipe with one of each task; each data set goes with its own recipe, as a test above says."""
    datasets = [composed(f"dataset={name}").dataset for name in ("python_docs", "cldr_de_en", "copy")]
    for recipe in group("recipe"):
        cfg = composed(f"recipe={recipe}")
        for cfg.dataset in datasets:
            if cfg.recipe.task == cfg.dataset.task:
                check(cfg)
            else:
                with pytest.raises(UsageError, match="is for"):
                    check(cfg)


def test_model_options_reach_fairseq():
    options = ["model.lambda_neg=0.25", "model.lambdas=trainable", "++fairseq.common.fp16_init_scale=4"]
    own = fairseq_config(composed("model=dagpam", *options))
    assert (own.model.attention, own.model.lambda_neg, own.model.lambdas) == ("dagpam", 0.25, "trainable")
    assert (own.common.seed, own.common.fp16_init_scale) == (1, 4)


def test_identity_ignores_places_and_logging_but_no_number():
    def hash_of(*overrides):
        return config_hash(identity(composed(*overrides)))

    same = hash_of("model=dagpam")
    assert hash_of("model=dagpam", "paths.results=/elsewhere", "tracking.mode=offline", "experiment_name=x") == same
    for change in (
        "seed=2",
        "model.lambda_neg=0.6",
        "++fairseq.model.dropout=0.3",
        "evaluation.context_window=0",
        "preprocessing.bpe_size=100",
        "dataset.words=raw",
        "gpu=single",
        "gpu.devices=2",
        "gpu.precision=bf16",
    ):
        assert hash_of("model=dagpam", change) != same, change


def test_the_fast_step_is_part_of_identity_and_the_slow_one_is_what_runs_were_before_it(monkeypatch):
    monkeypatch.delenv("GPAM_FAST", raising=False)
    default, off = identity(composed()), identity(composed("gpu.fast=false"))
    assert default["gpu"]["fast"] is True
    assert not {"fast", "devices", "precision"} & off["gpu"].keys()  # as in stored configurations from before them
    assert config_hash(default) != config_hash(off)
    monkeypatch.setenv("GPAM_FAST", "0")
    assert identity(composed()) == off
    assert identity(composed("gpu.fast=true")) == default


def test_folder_names_the_options_that_differ():
    cfg = composed("model=dagpam", "model.lambda_neg=0.2", "model.lambda_pos=0.2", "seed=3")
    assert folder_of(cfg).parent.name == "dagpam-lambda_neg=0.2,lambda_pos=0.2"
    assert folder_of(cfg).name.startswith("seed3-")
    assert overrides_label(composed("model=dagpam_trainable")) == "default"
    whole = [overrides_label(composed("model=dagpam", f"model.lambda_neg={one}")) for one in ("1", "1.0", "1e0")]
    assert whole == ["lambda_neg=1"] * 3
    assert overrides_label(composed("model=softmax_more_heads", "model.label=x")) == "default"
    assert overrides_label(composed("model=softmax_more_heads", "~model.control")) == "control=removed"
    assert overrides_label(composed("model=softmax", "model.attention=sigmoid")) == "attention=sigmoid"


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["gpu.fast=maybe"], "gpu.fast: got 'maybe', wanted true or false"),
        (["seed=-1"], "seed: got -1, wanted a whole number"),
        (["gpu.threads=0"], "gpu.threads: got 0, wanted a whole number of at least 1"),
        (["evaluation.checkpoint=bset"], "evaluation.checkpoint: got 'bset', wanted one of best, last; did you mean"),
        (["evaluation.max_tokens=abc"], "evaluation.max_tokens: got 'abc', wanted a whole number of at least 1"),
        (["dataset=cldr_de_en", "evaluation.beam=0"], "evaluation.beam: got 0, wanted a whole number of at least 1"),
        (["dataset=cldr_de_en", "evaluation.length_penalty=x"], "evaluation.length_penalty: got 'x', wanted a number"),
        (
            ["+evaluation.beam=3"],
            "evaluation.beam: a lm run has no such option (checkpoint, max_tokens, context_window)",
        ),
        (["dataset=cldr_de_en", "+evaluation.lenght_penalty=1"], "no such option; did you mean 'length_penalty'?"),
        (["++fairseq.task.add_bos_token=true"], "add_bos_token: got True, wanted false: a language model is evaluated"),
        (["++fairseq.task.sample_break_mode=eos"], "sample_break_mode: got eos, wanted none: a language model is"),
        (["checks.attention_every=-1"], "checks.attention_every: got -1, wanted a whole number of at least 0"),
        (["recipe=laptop_nmt"], "recipe 'laptop_nmt' is for nmt and data set 'python_docs' is for lm"),
        (["model=dagpam", "model.lambda_pos=.inf"], "wanted a finite number"),
        (["model=dagpam", "model.lambda_neg='0.25'"], "model.lambda_neg: got the text '0.25', wanted a number"),
        (["model=dagpam", "model.lambdas=trainable_equal", "model.lambda_pos=0"], "keeps a row's sum at 1"),
        (["+model.lambda_neg=1"], "'softmax' has no option 'lambda_neg'"),
        (["++fairseq.model.dropuot=1"], "did you mean 'dropout'"),
        (["++fairseq.task.tokens_per_sample=many"], "tokens_per_sample"),
        (["++fairseq.criterion._name=cros_entropy"], "did you mean 'cross_entropy'"),
        (
            ["++fairseq.optimizer=adma"],
            "fairseq.optimizer._name: fairseq knows no optimizer 'adma'; did you mean 'adam'?",
        ),
        (["++fairseq.lr_scheduler=3"], "fairseq.lr_scheduler._name: fairseq knows no lr_scheduler '3'"),
        (["++fairseq.criterion=null"], "fairseq.criterion is missing: wanted a mapping of options, with _name"),
        (["++fairseq.lr_scheduler._name=null"], "fairseq.lr_scheduler is missing: wanted a mapping"),
        (["++fairseq.model.attention=dagpam"], "fairseq.model.attention: got dagpam, wanted model=NAME"),
        (["++fairseq.model.lambda_neg=0.2"], "fairseq.model.lambda_neg: got 0.2, wanted model.lambda_neg=VALUE"),
        (["++fairseq.common.seed=9"], "fairseq.common.seed: got 9, wanted seed=NUMBER"),
        (["++fairseq.checkpoint.restore_file=a.pt"], "restore_file: got a.pt, wanted checkpoint_last.pt, from which"),
        (
            ["++fairseq.checkpoint.reset_optimizer=true"],
            "reset_optimizer: got True, wanted false: a killed",
        ),
        (["++fairseq.checkpoint.best_checkpoint_metric=bleu"], "best_checkpoint_metric: got bleu, wanted loss"),
        (["++fairseq.dataset.train_subset=test"], "train_subset: got 'test', wanted 'train'"),
        (["+recipe.evaluation.beam=2"], "recipe.evaluation: a recipe has name and task alone; its file begins with"),
        (["+preprocesing.bpe=none"], "there is no option 'preprocesing'; did you mean 'preprocessing'?"),
        (["++fairseq.dataset.max_tokens=2"], "max_tokens=2 is less than one sample of"),
    ],
)
def test_mistakes_are_one_sentence(overrides, sentence):
    with pytest.raises(UsageError) as caught:
        check(composed(*overrides))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("paths.results=~/a=b", "paths.results='/my/own/a=b'"),
        ("evaluation.checkpoint=a/lambda_neg=0.25/c.pt", "evaluation.checkpoint='a/lambda_neg=0.25/c.pt'"),
        ("evaluation.checkpoint=last", "evaluation.checkpoint=last"),
        ("dataset.folder=2024", "dataset.folder='2024'"),
        ("dataset.folder=text/", "dataset.folder='text'"),
        ("paths.results=/", "paths.results='/'"),
        ("run=a,b", "run=a,b"),
        ("fairseq.common.cpu=true", "++fairseq.common.cpu=true"),
        ("model=~", "model=~"),
    ],
)
def test_folders_and_options_of_fairseqs_are_written_as_hydra_takes_them(word, read, monkeypatch):
    monkeypatch.setenv("HOME", "/my/own")
    assert as_hydra_takes_it(word) == read


def test_options_of_swept_models_are_the_registrys_to_check():
    assert as_hydra_takes_it("model.lambda_neg=1", sweeps_models=True) == "++model.lambda_neg=1"
    assert as_hydra_takes_it("model.lambda_neg=1") == "model.lambda_neg=1"
