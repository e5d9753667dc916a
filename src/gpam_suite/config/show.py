"""The composed configuration as a tree, for a person to look at before a run."""

import sys
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.text import Text
from rich.tree import Tree


def show(cfg: DictConfig) -> None:
    """Print ``cfg`` to stderr; in a multirun nothing, since every member would repeat it."""
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        return
    tree = Tree("configuration")
    _grow(tree, OmegaConf.to_container(cfg, resolve=True))
    Console(file=sys.stderr, highlight=False).print(tree)


def _grow(tree: Tree, node: dict[str, Any]) -> None:
    for key, value in node.items():
        if isinstance(value, dict):
            _grow(tree.add(Text(key, style="bold")), value)
        else:
            tree.add(Text(f"{key}: {value}"))  # as it is: a name may hold what rich takes for markup
