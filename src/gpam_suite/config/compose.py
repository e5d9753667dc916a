"""From a composed Hydra configuration to what a run is: checks, its identity, its folder."""

import contextlib
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gpam.errors import UsageError, did_you_mean, in_a_line
from gpam_suite.common.options import finite, mapping, nonempty, one_of, whole_number
from gpam_suite.common.places import CONFIGS
from gpam_suite.common.tasks import LM, NMT, RECALL
from gpam_suite.config.device_batches import check_devices
from gpam_suite.config.fairseq_tree import fairseq_config, refuse_names_of_fairseq
from gpam_suite.config.identity import canonical, config_hash, run_folder

NOT_PART_OF_A_RESULT = ("paths", "tracking", "checks", "experiment_name")
"""Top-level nodes that say where a run writes, and how it is logged and watched: they cannot change a number."""
_BEFORE_THE_CHOICE = {"devices": 1, "precision": "fp32", "fast": False}
"""Keys of the ``gpu`` node that came later, with what they were till then: a run keeps its hash."""
_NODES = {
    "dataset": ("name", "label", "task", "kind"),
    "recipe": ("name", "task"),
    "model": ("name", "label", "attention"),
    "gpu": ("name",),
    "evaluation": (),
    "preprocessing": (),
    "fairseq": (),
}
"""Nodes of a run's configuration, and what names them."""
_EVALUATION, _DECODING = ("checkpoint", "max_tokens", "context_window"), ("beam", "length_penalty", "second_test")
"""Keys of the ``evaluation`` node, and those more of a translation's."""
_BESIDE = ("seed", "experiment_name", "checks", "tracking", "paths")  # the other top-level keys of a training


def composed(*overrides: str, root: str = "train") -> DictConfig:
    """``configs/<root>.yaml`` with ``overrides`` as a command composes it, inside or outside of a Hydra application."""
    ready = GlobalHydra.instance().is_initialized()
    with contextlib.nullcontext() if ready else initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return compose(root, overrides=list(overrides))


def stored(path: Path) -> DictConfig:
    """The configuration in a file that a run left.

    Raises:
        UsageError: it is no YAML, or no configuration.
    """
    try:
        cfg = OmegaConf.load(path)
        if not isinstance(cfg, DictConfig):
            raise UsageError("it holds no configuration")
        check_nodes(cfg)
    except (yaml.YAMLError, OmegaConfBaseException, ValueError, OSError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read ({in_a_line(error)}): restore it from git, or run again") from None
    return cfg


def check_nodes(cfg: DictConfig) -> None:
    """Raise UsageError where a node that every run has is missing, or is no mapping, or has not its names."""
    for name, keys in _NODES.items():
        mapping(cfg.get(name), name)
        for key in keys:
            nonempty(cfg[name].get(key), f"{name}.{key}")


def check(cfg: DictConfig) -> None:
    """Raise UsageError for what Hydra cannot know to be wrong."""
    _refuse_unread_files()
    check_nodes(cfg)
    if unknown := sorted(set(cfg.recipe) - set(_NODES["recipe"])):
        raise UsageError(
            f"recipe.{unknown[0]}: a recipe has {' and '.join(_NODES['recipe'])} alone; its file begins with the line "
            "'# @package _global_', so that the rest counts"
        )
    if "checks" in cfg:  # a plan trains nothing
        known = (*_NODES, *_BESIDE)
        if unknown := [name for name in cfg if name not in known]:
            raise UsageError(f"there is no option '{unknown[0]}'{did_you_mean(unknown[0], known)} ({', '.join(known)})")
        mapping(cfg.get("checks"), "checks")
        whole_number(cfg.checks.get("attention_every"), 0, "checks.attention_every")
        mapping(cfg.get("tracking"), "tracking")
    nonempty(cfg.get("experiment_name"), "experiment_name")
    if whole_number(cfg.seed, 0, "seed") >= 2**31:  # numpy's end, with room for the epochs that fairseq adds
        raise UsageError(f"seed: got {cfg.seed}, wanted a number below 2**31")
    whole_number(cfg.gpu.get("threads"), 1, "gpu.threads")
    one_of(cfg.evaluation.get("checkpoint"), ("best", "last"), "evaluation.checkpoint")
    fast(cfg)
    if cfg.recipe.task != cfg.dataset.task:
        raise UsageError(
            f"recipe '{cfg.recipe.name}' is for {cfg.recipe.task} and data set '{cfg.dataset.name}' is for "
            f"{cfg.dataset.task}; choose a recipe of the same task (configs/recipe/)"
        )
    complete = fairseq_config(cfg)
    refuse_names_of_fairseq(cfg)
    check_evaluation(cfg, complete)
    check_devices(cfg, complete)
    for subset, wanted in (("train_subset", "train"), ("valid_subset", "valid")):
        if (got := complete.dataset[subset]) != wanted:
            raise UsageError(
                f"fairseq.dataset.{subset}: got '{got}', wanted '{wanted}': what is tested is never trained or chosen "
                "on; for other text make a data set of it (configs/dataset/)"
            )
    _check_samples_fit("fairseq.dataset.max_tokens", complete.dataset.max_tokens, complete)


def _check_samples_fit(name: str, most: int | None, complete: DictConfig) -> None:
    """Refuse batches of at most so many tokens where a sample has more."""
    length = complete.task.get("tokens_per_sample")
    if length is not None and most is not None and most < length:
        raise UsageError(
            f"{name}={most} is less than one sample of {length} tokens; raise it, or shorten the samples "
            "(fairseq.task.tokens_per_sample; of a generated task, dataset.length)"
        )


def check_evaluation(cfg: DictConfig, complete: DictConfig) -> None:
    """Refuse options of the evaluation that would fail after the training; ``complete`` is fairseq's part. (How long
    the sentences of a translation are is known once its data are there: :mod:`gpam_suite.evaluate.limits`.)"""
    known = _EVALUATION + (_DECODING if cfg.dataset.task == NMT.name else ())
    if unknown := [key for key in cfg.evaluation if key not in known]:
        raise UsageError(
            f"evaluation.{unknown[0]}: a {cfg.dataset.task} run has no such option{did_you_mean(unknown[0], known)} "
            f"({', '.join(known)})"
        )
    most = whole_number(cfg.evaluation.get("max_tokens"), 1, "evaluation.max_tokens")
    if cfg.dataset.task == RECALL.name:
        _check_samples_fit("evaluation.max_tokens", most, complete)
    if cfg.dataset.task == NMT.name:
        whole_number(cfg.evaluation.get("beam"), 1, "evaluation.beam")
        finite(cfg.evaluation.get("length_penalty"), "evaluation.length_penalty")
    window, length = cfg.evaluation.get("context_window"), complete.task.get("tokens_per_sample")
    if cfg.dataset.task == LM.name:
        for key, wanted in (("sample_break_mode", "none"), ("add_bos_token", False)):
            if (got := complete.task.get(key, wanted)) != wanted:
                raise UsageError(
                    f"fairseq.task.{key}: got {got}, wanted {str(wanted).lower()}: a language model is evaluated on "
                    "its text as one stream, and trained so"
                )
        if isinstance(window, bool) or not isinstance(window, int) or not 0 <= window < length:
            raise UsageError(
                f"evaluation.context_window: got '{window}', wanted a whole number from 0 to {length - 1}, below "
                f"fairseq.task.tokens_per_sample={length}"
            )
    elif window is not None:
        raise UsageError(f"evaluation.context_window={window} does not apply to a {cfg.dataset.task} run; leave it out")


def _plain(node: Any) -> dict[str, Any]:
    return OmegaConf.to_container(node, resolve=True)


def identity(cfg: DictConfig) -> dict[str, Any]:
    """Everything that can change a number, and more: the resolved configuration without places and the machine."""
    found = {key: value for key, value in _plain(cfg).items() if key not in NOT_PART_OF_A_RESULT}
    found["gpu"]["fast"] = fast(cfg)
    found["gpu"] = {key: value for key, value in found["gpu"].items() if _BEFORE_THE_CHOICE.get(key) != value}
    return found


def fast(cfg: DictConfig) -> bool:
    """``gpu.fast``, whether training takes the fast step; false in the configuration of a run from before it.

    It decides a run's identity, and nothing else of the step does: whether a machine has a use for the library of fast
    products is a fact of the machine and stands in the record's hardware.
    """
    from gpam_fairseq.trainer.switch import read

    return read(OmegaConf.select(cfg, "gpu.fast", default=False), "gpu.fast")


def overrides_label(cfg: DictConfig) -> str:
    """What differs from ``configs/model/<name>.yaml`` but its label, as ``lambda_neg=0.2,lambda_pos=0.2``; what
    ``~model.KEY`` took out is ``KEY=removed``."""
    own, stock = (dict(model, label=None) for model in (_plain(cfg.model), _model_file(cfg.model.name)))
    changed = {key: canonical(value) for key, value in own.items() if stock.get(key) != value}
    changed |= dict.fromkeys(stock.keys() - own.keys(), "removed")
    return ",".join(f"{key}={value}" for key, value in sorted(changed.items())) or "default"


def _model_file(name: str) -> dict[str, Any]:
    """``configs/model/<name>.yaml``, or that of another place that ``hydra.searchpath`` names, with the files that its
    defaults list names."""
    places = [CONFIGS, *_own_folders()]
    file = next((file for place in places if (file := place / "model" / f"{name}.yaml").is_file()), None)
    if file is None:
        meant = did_you_mean(name, [known.stem for place in places for known in (place / "model").glob("*.yaml")])
        raise UsageError(
            f"model.name: got '{name}', wanted the name of a file of configs/model, which model=NAME sets; what tables "
            f"call a model is model.label{meant}"
        )
    own = OmegaConf.to_container(OmegaConf.load(file))
    merged: dict[str, Any] = {}
    for base in own.pop("defaults", []):
        merged |= {} if base == "_self_" else _model_file(base)
    return merged | own


def _own_folders() -> list[Path]:
    """The folders that ``hydra.searchpath`` names."""
    sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    return [Path(found.path) for found in sources if found.provider.startswith("hydra.searchpath")]


def _refuse_unread_files() -> None:
    """Raise UsageError where a file of one's own has a name of ``configs``: Hydra reads the one that it finds first."""
    for folder in _own_folders():
        for file in sorted(folder.rglob("*.yaml")):
            stock = CONFIGS / file.relative_to(folder)
            if stock.is_file() and stock.read_bytes() != file.read_bytes():
                raise UsageError(f"{file} is not read, as a file of configs/ has its name: give it another")


def folder_of(cfg: DictConfig) -> Path:
    """Where this run writes."""
    return run_folder(
        Path(cfg.paths.results),
        cfg.experiment_name,
        cfg.model.name,
        overrides_label(cfg),
        cfg.seed,
        config_hash(identity(cfg)),
    )
