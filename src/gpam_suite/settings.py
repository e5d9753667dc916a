"""What ``config.yaml`` says about how a run was trained: the settings two runs of one table must share."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from gpam.errors import UsageError
from gpam_suite import archives
from gpam_suite.records import Record

CONFIG = "config.yaml"
_SHARED = ("dataset", "preprocessing")
_SHARED_FAIRSEQ = ("task", "criterion", "optimizer", "lr_scheduler", "optimization")
_BATCH = "tokens per update"


def training_settings(record: Record) -> dict[str, Any]:
    """Dotted name to value of everything in the run's configuration that is neither model, seed nor machine.

    How a batch is cut up belongs to the machine (``max_tokens``, ``update_freq``), so only their product counts, which
    the devices share (:mod:`gpam_suite.sharing`). Empty for a run without ``config.yaml``.
    """
    config = _read(record)
    fairseq = config.get("fairseq") or {}
    found = {key: value for name in _SHARED for key, value in _leaves(config.get(name), name)}
    for name in _SHARED_FAIRSEQ:
        found.update(_leaves(fairseq.get(name), f"fairseq.{name}"))
    update_freq = found.pop("fairseq.optimization.update_freq", None) or [1]
    max_tokens = (fairseq.get("dataset") or {}).get("max_tokens")
    if max_tokens:
        found[_BATCH] = max_tokens * update_freq[0]
    return found


def all_settings(record: Record) -> dict[str, Any]:
    """Dotted name to value of everything in the run's configuration; the options alone without ``config.yaml``."""
    config = _read(record) or {"model": {"name": record["model"], **record["options"]}, "seed": record["seed"]}
    return {name: value for key, node in config.items() for name, value in _leaves(node, key)}


def model_settings(record: Record) -> dict[str, Any]:
    """Dotted name to value of the model's size and placement (``fairseq.model``); controls may differ in it."""
    return dict(_leaves((_read(record).get("fairseq") or {}).get("model"), "fairseq.model"))


def _leaves(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{name}.{key}")
    elif node is not None:
        yield name, node


def _read(record: Record) -> dict[str, Any]:
    path = record.folder / CONFIG
    if not archives.is_file(path):
        return {}
    try:
        config = yaml.safe_load(archives.read_bytes(path))
        if not isinstance(config, dict):
            raise ValueError("it holds no mapping")
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} cannot be read ({reason}): restore it from git, or run again.") from None
    return config
