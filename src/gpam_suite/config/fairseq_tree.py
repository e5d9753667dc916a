"""fairseq's complete configuration of a run: the tree under ``fairseq`` with the ``model`` node's options in it."""

from collections.abc import Callable
from functools import cache
from operator import not_
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from gpam.attention.registry import all_options
from gpam.errors import UsageError, did_you_mean, in_a_line
from gpam_suite.common.options import mapping
from gpam_suite.config.controls import controlled_sizes
from gpam_suite.config.device_batches import HALF, precision
from gpam_suite.config.trust import refuse_code

MODEL_FACTS = ("name", "label", "attention", "control")
"""Keys of the ``model`` node that are not options of the mechanism."""
_INSTEAD = {
    **{f"common.{name}": "gpu.precision=fp16" for name in ("fp16", "amp", "memory_efficient_fp16")},
    **{f"common.{name}": "gpu.precision=bf16" for name in ("bf16", "memory_efficient_bf16")},
    "common.seed": "seed=NUMBER",
    "common.wandb_project": "tracking.project=NAME",
    "checkpoint.save_dir": "paths.results=FOLDER",
    "distributed_training.distributed_world_size": "gpu.devices=NUMBER",
    "task.data": "dataset=NAME",
    "task.source_lang": "dataset=NAME",
    "task.target_lang": "dataset=NAME",
    "model.attention": "model=NAME",
}
"""Options of fairseq's that are filled in from one of the suite's, which to give instead: set in fairseq's tree they
would change nothing but a run's hash, or the name of its row."""


def _are_betas(value: Any) -> bool:
    """A text that fairseq reads as a pair, or one of a list."""
    from gpam_fairseq.untrusted import are_betas

    return are_betas(value) if isinstance(value, str) else 0 <= value < 1


_UNREAD = ("generation", "eval_lm", "common_eval", "interactive")
"""Groups of fairseq's options that its training does not read."""
_SHARE = (lambda value: 0 <= value < 1, "a number from 0 to below 1")
_RANGES = {
    **dict.fromkeys(("model.dropout", "model.attention_dropout", "model.activation_dropout"), _SHARE),
    **dict.fromkeys(
        (
            "model.encoder_layers",
            "model.decoder_layers",
            "optimization.max_update",
            "common.log_interval",
            "dataset.validate_interval",
            "checkpoint.save_interval",
            "dataset.max_tokens",
            "dataset.batch_size",
            "dataset.required_batch_size_multiple",
            "task.tokens_per_sample",
            "task.max_source_positions",
            "task.max_target_positions",
            *(f"model.{stack}_{width}" for stack in ("encoder", "decoder") for width in ("embed_dim", "ffn_embed_dim")),
        ),
        (lambda value: value >= 1, "at least 1"),
    ),
    "dataset.num_workers": (lambda value: value >= 0, "at least 0"),
    "optimization.lr": (lambda value: value > 0, "numbers above 0"),
    "optimization.max_epoch": (not_, "0: how long a run trains is max_update, and at another end nothing is saved"),
    "optimization.stop_min_lr": (
        lambda value: value < 0,
        "below 0: how long a run trains is max_update, and at another end nothing is saved",
    ),
    "optimization.stop_time_hours": (not_, "0: how far a run came would depend on how fast its machine was"),
    "optimization.update_freq": (lambda value: value >= 1, "numbers of at least 1"),
    "optimizer.adam_betas": (_are_betas, "two numbers from 0 to below 1, as in '(0.9, 0.98)'"),
    "checkpoint.no_save": (not_, "false: what is saved is evaluated"),
    "checkpoint.no_last_checkpoints": (not_, "false: a killed run goes on from the last one"),
    "checkpoint.no_save_optimizer_state": (not_, "false: a killed run goes on with it"),
    "checkpoint.checkpoint_suffix": (not_, "no suffix: what is saved is found by its name"),
    "checkpoint.write_checkpoints_asynchronously": (not_, "false: a killed run would find nothing to go on from"),
    "checkpoint.optimizer_overrides": ("{}".__eq__, "{}: they would count where a killed run goes on, and only there"),
    "checkpoint.continue_once": (not_, "none: finetune_from_model starts with another's parameters"),
    "ema.store_ema": (not_, "false: an average would be kept, and never evaluated"),
    "dataset.gen_subset": ("test".__eq__, "'test', which is evaluated"),
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


def model_options(cfg: DictConfig) -> dict[str, Any]:
    """The options of the ``model`` node that go to the mechanism."""
    model = OmegaConf.to_container(cfg.model, resolve=True)
    return {key: value for key, value in model.items() if key not in MODEL_FACTS}


def fairseq_config(cfg: DictConfig) -> DictConfig:
    """fairseq's complete configuration: the tree under ``fairseq``, with the ``model`` node's attention and options.

    Every default is filled in from fairseq's own dataclasses, so a misspelt key or a value of the wrong type is a
    UsageError that names it. The mechanism's options are checked by the registry.
    """
    from gpam_fairseq.install import NO_ATTENTION  # noqa: I001  (before fairseq)
    from gpam_fairseq.models import check_heads
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
    tree = OmegaConf.to_container(cfg.fairseq, resolve=True)
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
        tree["model"] |= controlled_sizes(cfg.model.control, tree["model"], tree.get("task", {}))
    tree["common"]["seed"] = cfg.seed
    if precision(cfg) in HALF:
        tree["common"][precision(cfg)] = True
    _check_names(tree)
    try:
        complete = OmegaConf.merge(_stock(), tree)  # of a copy
        add_defaults(complete)
        complete = OmegaConf.create(OmegaConf.to_container(complete, resolve=True, enum_to_str=True))
    except OmegaConfBaseException as error:
        raise UsageError(_omegaconf_sentence(error, tree)) from None
    except (TypeError, ValueError, AttributeError, AssertionError) as error:  # OmegaConf's and fairseq's own slips
        raise UsageError(f"fairseq configuration: {in_a_line(error)}; correct the options") from None
    for group in ("task", "model", "criterion", "optimizer", "lr_scheduler"):
        if OmegaConf.select(complete, f"{group}._name") is None:
            raise UsageError(f"fairseq.{group} is missing: wanted a mapping of options, with _name")
    stacks = (one for one in ("encoder", "decoder") if complete.model.get(f"{one}_attention_heads") is not None)
    check_heads(complete.model, *stacks, prefix="fairseq.model.")
    _check_ranges(complete)
    checked_backend(complete.model.get("attention_backend", "auto"))
    OmegaConf.set_struct(complete, True)
    return complete


@cache
def _stock() -> DictConfig:
    """fairseq's own dataclasses, whose reading takes a third of the time of a check."""
    from fairseq.dataclass.configs import FairseqConfig

    return OmegaConf.structured(FairseqConfig)


def refuse_names_of_fairseq(cfg: DictConfig) -> None:
    """Refuse options of fairseq's that the suite, or its ``model`` node, sets.

    Raises:
        UsageError: one of them is given.
    """
    if unread := [group for group in _UNREAD if cfg.fairseq.get(group)]:
        raise UsageError(f"fairseq.{unread[0]} is not read here; how a run is evaluated is evaluation.NAME=VALUE")
    for name, instead in {**_INSTEAD, **{f"model.{name}": f"model.{name}=VALUE" for name in all_options()}}.items():
        value = OmegaConf.select(cfg.fairseq, name)
        if value is not None and value is not False:
            raise UsageError(f"fairseq.{name}: got {value}, wanted {instead}")


def _check_names(tree: dict[str, Any]) -> None:
    """Refuse a ``_name`` that nothing is registered under: fairseq would fail without naming the option."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
    from fairseq.registry import REGISTRIES
    from fairseq.tasks import TASK_DATACLASS_REGISTRY

    known = {"model": {**MODEL_DATACLASS_REGISTRY, **ARCH_MODEL_NAME_REGISTRY}, "task": TASK_DATACLASS_REGISTRY}
    known |= {group: registry["dataclass_registry"] for group, registry in REGISTRIES.items()}
    for group, node in tree.items():
        name = node.get("_name") if isinstance(node, dict) else node  # fairseq takes the bare name as well
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
    after, last, save = (
        complete.dataset.validate_after_updates,
        complete.optimization.max_update,
        complete.checkpoint.save_interval_updates,
    )
    if after > last:
        raise UsageError(
            f"fairseq.dataset.validate_after_updates: got {after}, wanted at most {last} "
            "(fairseq.optimization.max_update): the best checkpoint comes from validation"
        )
    if 0 < save < after:
        raise UsageError(
            f"fairseq.dataset.validate_after_updates: got {after}, wanted at most {save} "
            "(fairseq.checkpoint.save_interval_updates): before it fairseq saves nothing"
        )
    if complete.lr_scheduler._name == "inverse_sqrt" and complete.lr_scheduler.warmup_updates < 1:
        raise UsageError(
            f"fairseq.lr_scheduler.warmup_updates: got {complete.lr_scheduler.warmup_updates}, wanted at least 1: "
            "inverse_sqrt divides by it"
        )
    for unit in ("interval", "interval_updates"):
        validated, saved = complete.dataset[f"validate_{unit}"], complete.checkpoint[f"save_{unit}"]
        if validated > 0 and (saved <= 0 or validated % saved):
            raise UsageError(
                f"fairseq.dataset.validate_{unit}: got {validated}, wanted a multiple of "
                f"fairseq.checkpoint.save_{unit}={saved}: the best of what is validated has to be on the disk"
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
    misspelt = isinstance(parent, DictConfig) and leaf not in parent
    wants_a_list = "is not a ListConfig" in first_line
    for group, own in tree.items() if key == leaf else ():  # of a group OmegaConf names its key alone
        if isinstance(own, dict) and leaf in own and not (wants_a_list and isinstance(own[leaf], list)):
            key = key if misspelt and own.keys() - {leaf} - parent.keys() else f"{group}.{leaf}"
    if wants_a_list:
        got = OmegaConf.select(OmegaConf.create(tree), key)
        example = got if isinstance(got, int | float) else "0.5,1"
        return f"fairseq.{key}: got '{got}', wanted a list, as in fairseq.{key}=[{example}]"
    meant = did_you_mean(leaf, [str(name) for name in parent]) if misspelt else ""
    if misspelt and not meant:
        groups = (*_stock().items_ex(resolve=False), *tree.items())
        owners = [name for name, own in groups if isinstance(own, DictConfig | dict) and leaf in own]
        owners = [name for name in owners if f"{name}.{leaf}" != key]
        meant = f"; did you mean 'fairseq.{owners[0]}.{leaf}'?" if owners else ""
    return f"fairseq configuration, key '{key}': {first_line}{meant}"
