"""From a composed Hydra configuration to what a run is: checks, fairseq's own configuration, the run's identity."""

import contextlib
from collections.abc import Callable
from operator import not_
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gpam.errors import UsageError, did_you_mean, in_a_line
from gpam_suite.common.options import finite, mapping, nonempty, one_of, whole_number
from gpam_suite.common.places import CONFIGS
from gpam_suite.common.tasks import LM, NMT, RECALL
from gpam_suite.config.controls import controlled_sizes
from gpam_suite.config.device_batches import HALF, check_devices, precision
from gpam_suite.config.identity import config_hash, run_folder
from gpam_suite.config.own_options import refuse_names_of_fairseq
from gpam_suite.config.trust import refuse_code

NOT_PART_OF_A_RESULT = ("paths", "tracking", "checks", "experiment_name")
"""Top-level nodes that say where a run writes, and how it is logged and watched: they cannot change a number."""
MODEL_FACTS = ("name", "label", "attention", "control")
"""Keys of the ``model`` node that are not options of the mechanism."""
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
_BESIDE = ("seed", "experiment_name", "checks", "tracking", "paths")  # those: the rest of what a training has
_SHARE = (lambda value: 0 <= value < 1, "a number from 0 to below 1")
_RANGES = {
    **dict.fromkeys(("model.dropout", "model.attention_dropout", "model.activation_dropout"), _SHARE),
    **dict.fromkeys(("model.encoder_layers", "model.decoder_layers"), (lambda value: value >= 1, "at least 1")),
    "optimization.lr": (lambda value: value > 0, "numbers above 0"),
    "optimization.max_update": (lambda value: value >= 1, "at least 1"),
    "optimization.max_epoch": (not_, "0: how long a run trains is max_update, and at another end nothing is saved"),
    "optimization.update_freq": (lambda value: value >= 1, "numbers of at least 1"),
    "common.log_interval": (lambda value: value >= 1, "at least 1"),
    "checkpoint.no_save": (not_, "false: what is saved is evaluated"),
    "checkpoint.no_last_checkpoints": (not_, "false: a killed run goes on from the last one"),
    "checkpoint.no_save_optimizer_state": (not_, "false: a killed run goes on with it"),
    "checkpoint.checkpoint_suffix": (not_, "no suffix: what is saved is found by its name"),
    "checkpoint.restore_file": (
        "checkpoint_last.pt".__eq__,
        "checkpoint_last.pt, from which a killed run goes on; finetune_from_model starts with another's parameters",
    ),
    **{
        f"checkpoint.reset_{name}": (not_, "false: a killed run goes on with it")
        for name in ("dataloader", "lr_scheduler", "meters", "optimizer")
    },
    "checkpoint.best_checkpoint_metric": ("loss".__eq__, "loss: of that is the update that tables call the scored one"),
    "checkpoint.maximize_best_checkpoint_metric": (not_, "false: of a loss the least is the best"),
    "dataset.disable_validation": (not_, "false: curves and the best checkpoint come from validation"),
}
"""Options of fairseq to what their values have to be."""


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
    most = whole_number(cfg.evaluation.get("max_tokens"), 1, "evaluation.max_tokens")
    if cfg.dataset.task == RECALL.name:
        _check_samples_fit("evaluation.max_tokens", most, complete)
    if cfg.dataset.task == NMT.name:
        whole_number(cfg.evaluation.get("beam"), 1, "evaluation.beam")
        finite(cfg.evaluation.get("length_penalty"), "evaluation.length_penalty")
    window, length = cfg.evaluation.get("context_window"), complete.task.get("tokens_per_sample")
    if cfg.dataset.task == LM.name:
        if isinstance(window, bool) or not isinstance(window, int) or not 0 <= window < length:
            raise UsageError(
                f"evaluation.context_window: got '{window}', wanted a whole number from 0 to {length - 1}, below "
                f"fairseq.task.tokens_per_sample={length}"
            )
    elif window is not None:
        raise UsageError(f"evaluation.context_window={window} does not apply to a {cfg.dataset.task} run; leave it out")


def model_options(cfg: DictConfig) -> dict[str, Any]:
    """The options of the ``model`` node that go to the mechanism."""
    return {key: value for key, value in _plain(cfg.model).items() if key not in MODEL_FACTS}


def fairseq_config(cfg: DictConfig) -> DictConfig:
    """fairseq's complete configuration: the tree under ``fairseq``, with the ``model`` node's attention and options.

    Every default is filled in from fairseq's own dataclasses, so a misspelt key or a value of the wrong type is a
    UsageError that names it. The mechanism's options are checked by the registry.
    """
    from gpam_fairseq.install import NO_ATTENTION  # noqa: I001  (before fairseq)
    from gpam_fairseq.models import check_heads
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.dataclass.initialize import add_defaults

    from gpam.attention import options_of
    from gpam.attention.functional import checked_backend

    refuse_code(cfg)
    given = model_options(cfg)
    if cfg.model.attention != NO_ATTENTION:
        checked = options_of(cfg.model.attention, given)
        for name, value in given.items():
            if isinstance(value, str) and not isinstance(getattr(checked, name), str):  # would be a run of its own
                raise UsageError(f"model.{name}: got the text '{value}', wanted a number: give it without quotes")
    tree = _plain(cfg.fairseq)
    tree.setdefault("common", {})
    for group in ("common", "model", "task", "dataset", "optimization", "checkpoint"):
        mapping(tree.get(group, {}), f"fairseq.{group}")
    tree["model"] = {**tree.get("model", {}), "attention": cfg.model.attention, **given}
    if cfg.model.attention == NO_ATTENTION and str(tree["model"].get("_name")).startswith("gpam"):
        raise UsageError(
            f"model={cfg.model.name} has no attention, and recipe '{cfg.recipe.name}' makes a Transformer; choose a "
            "recipe of a recurrent network (configs/recipe/*_lstm.yaml)"
        )
    if "control" in cfg.model:
        tree["model"] |= controlled_sizes(cfg.model.control, tree["model"], tree["task"])
    tree["common"]["seed"] = cfg.seed
    if precision(cfg) in HALF:
        tree["common"][precision(cfg)] = True
    _check_names(tree)
    try:
        complete = OmegaConf.merge(OmegaConf.structured(FairseqConfig), tree)
        add_defaults(complete)
        complete = OmegaConf.create(OmegaConf.to_container(complete, resolve=True, enum_to_str=True))
    except OmegaConfBaseException as error:
        raise UsageError(_omegaconf_sentence(error, tree)) from None
    except (TypeError, ValueError, AttributeError, AssertionError) as error:  # OmegaConf's and fairseq's own slips
        raise UsageError(f"fairseq configuration: {in_a_line(error)}; correct the options") from None
    for group in ("task", "model"):
        if complete[group] is None:
            raise UsageError(f"fairseq.{group} is missing: wanted a mapping of options, with _name")
    stacks = (one for one in ("encoder", "decoder") if complete.model.get(f"{one}_attention_heads") is not None)
    check_heads(complete.model, *stacks, prefix="fairseq.model.")
    _check_ranges(complete)
    checked_backend(complete.model.get("attention_backend", "auto"))
    OmegaConf.set_struct(complete, True)
    return complete


def _check_names(tree: dict[str, Any]) -> None:
    """Refuse a ``_name`` that nothing is registered under: fairseq would fail without naming the option."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    known = {"model": {**MODEL_DATACLASS_REGISTRY, **ARCH_MODEL_NAME_REGISTRY}, "task": TASK_DATACLASS_REGISTRY}
    known |= {group: registry["dataclass_registry"] for group, registry in REGISTRIES.items()}
    for group, node in tree.items():
        name = node.get("_name") if isinstance(node, dict) else None
        if name is not None and group in known and (not isinstance(name, str) or name not in known[group]):
            raise UsageError(
                f"fairseq.{group}._name: fairseq knows no {group} '{name}'{did_you_mean(name, known[group])}"
            )


def _check_ranges(complete: DictConfig) -> None:
    """What fairseq would find out after the data are prepared, or never."""
    for key, (fits, wanted) in _RANGES.items():
        values = OmegaConf.select(complete, key)
        several = isinstance(values, ListConfig)
        given = [value for value in (values if several else [values]) if value is not None]
        wrong = [value for value in given if not _is(fits, value)]
        if wrong or (several and not values):
            raise UsageError(f"fairseq.{key}: got {wrong[0] if wrong else 'an empty list'}, wanted {wanted}")
    after, last = complete.dataset.validate_after_updates, complete.optimization.max_update
    if after > last:
        raise UsageError(
            f"fairseq.dataset.validate_after_updates: got {after}, wanted at most {last} "
            "(fairseq.optimization.max_update): the best checkpoint comes from validation"
        )


def _is(fits: Callable[[Any], bool], value: Any) -> bool:
    """Whether it fits; a word does not where numbers are compared (fairseq's recurrent networks take any type)."""
    try:
        return fits(value)
    except TypeError:
        return False


def _omegaconf_sentence(error: OmegaConfBaseException, tree: dict[str, Any]) -> str:
    """OmegaConf's complaint in one sentence, with the key that was meant."""
    first_line = str(error).splitlines()[0]
    key, parent = str(error.full_key or error.key or ""), error.parent_node
    leaf = key.rsplit(".", maxsplit=1)[-1]
    if "is not a ListConfig" in first_line:
        got = OmegaConf.select(OmegaConf.create(tree), key)
        example = got if isinstance(got, int | float) else "0.5,1"
        return f"fairseq.{key}: got '{got}', wanted a list, as in fairseq.{key}=[{example}]"
    misspelt = isinstance(parent, DictConfig) and leaf not in parent
    meant = did_you_mean(leaf, [str(name) for name in parent]) if misspelt else ""
    if misspelt and not meant:
        owners = [name for name, node in parent.items() if isinstance(node, DictConfig) and leaf in node]
        meant = f"; did you mean 'fairseq.{owners[0]}.{leaf}'?" if owners else ""
    return f"fairseq configuration, key '{key}': {first_line}{meant}"


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
    """What differs from ``configs/model/<name>.yaml`` but its label, as ``lambda_neg=0.2,lambda_pos=0.2``."""
    stock = _model_file(cfg.model.name)
    changed = {key: value for key, value in _plain(cfg.model).items() if key != "label" and stock.get(key) != value}
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
