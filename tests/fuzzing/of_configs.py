"""Configurations and overrides: a run that could start, or one sentence."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml
from data_helpers import node
from hypothesis import strategies as st
from omegaconf import OmegaConf
from runs import composed

from fuzzing.damage import damaged
from fuzzing.judge import REFUSED, Broken, outcome, refused
from fuzzing.of_records import changed
from fuzzing.target import Target
from gpam_suite.common.places import CONFIGS
from gpam_suite.config.compose import check, folder_of, identity, stored
from gpam_suite.config.trust import guarded_composition
from gpam_suite.data.dataset import check_dataset, check_fit
from gpam_suite.data.kinds.sources import KINDS
from gpam_suite.data.options import check_preprocessing
from gpam_suite.data.store.unpack import refuse_outside


@cache
def _trees() -> list[dict[str, Any]]:
    """Whole configurations of a language model, a translation and a task with answers."""
    choices = ([], ["experiment=nmt_laptop", "model=dagpam"], ["dataset=copy", "model=softmax_more_heads"])
    return [OmegaConf.to_container(composed(*words), resolve=True) for words in choices]


def _config(tree: dict[str, Any], folder: Path) -> None:
    def work() -> Path:
        cfg = OmegaConf.create(tree)
        check(cfg)
        identity(cfg)
        return folder_of(cfg)

    found = outcome(work)
    if found is REFUSED and tree in _trees():
        raise Broken("a good configuration was refused")
    if found is not REFUSED and ".." in found.parts:
        raise Broken(f"a run would write into {found}")


def _nodes() -> list[dict[str, Any]]:
    found = []
    for path in sorted((CONFIGS / "dataset").glob("*.yaml")):
        recipe = OmegaConf.to_container(OmegaConf.load(CONFIGS / "recipe" / path.name)).get("preprocessing") or {}
        found.append({"dataset": node(path.stem), "preprocessing": recipe})
    return found


def _node(tree: dict[str, Any], folder: Path) -> None:
    """Up to the point where data would be read: no name leads out of its folder."""
    folder = folder / "data"
    folder.mkdir(exist_ok=True)

    def work() -> dict[str, Any]:
        dataset, options = check_dataset(tree.get("dataset")), check_preprocessing(tree.get("preprocessing"))
        check_fit(dataset, options)
        KINDS[dataset["kind"]].open(dataset, {"data": str(folder), "mirror": None, "offline": True})
        return dataset

    found = outcome(work)
    if found is not REFUSED:
        refuse_outside(found["name"], "data set")
    if any(path.name != "downloads" for path in folder.iterdir()) or len(list(folder.parent.iterdir())) > 1:
        raise Broken(f"something was written: {list(folder.parent.rglob('*'))}")


_OF_GROUPS = ["seed", "model", "dataset", "recipe", "gpu", "experiment", "evaluation", "tracking", "fairseq", "x.y"]
_DEEP = ["fairseq.optimization.lr", "model.lambda_neg", "fairseq.model.decoder_layers", "paths.results"]
_WORDS = st.sampled_from([*_OF_GROUPS, *_DEEP, "preprocessing.bpe_size", "hydra.run.dir"])
_ODD = ["1", "-1", "", "null", "dagpam", "softmx", "[1,2]", "{a: b}", "1,2", "'", '"', "\\", "???"]
_VALUES = st.sampled_from([*_ODD, "${seed}", "${x}", "${oc.env:PATH}"]) | st.text(max_size=6)


def _override(words: list[str], folder: Path) -> None:
    def work() -> object:
        with guarded_composition():
            cfg = composed(*words)
        check(cfg)
        return folder_of(cfg)

    outcome(work)


YAML = b"""seed: 1
dataset: {name: x, label: X, task: lm, kind: local}
recipe: {name: short_lm, task: lm}
model: {name: softmax, label: Softmax, attention: softmax}
gpu: {name: cpu}
evaluation: {max_tokens: 256}
preprocessing: {}
fairseq: {optimization: {lr: [0.1]}}
"""


def stored_bytes(content: bytes, folder: Path) -> None:
    (folder / "config.yaml").write_bytes(content)
    found = outcome(lambda: stored(folder / "config.yaml"))
    if not refused(found, intact=content == YAML) and OmegaConf.to_container(found) != yaml.safe_load(content):
        raise Broken(f"{content!r} was read as {found}")


TARGETS = (
    Target("configurations", lambda _: st.deferred(lambda: changed(*_trees())), _config, 80, 12),
    Target("data nodes", lambda _: st.deferred(lambda: changed(*_nodes())), _node, 400, 60),
    Target(
        "overrides",
        lambda _: st.lists(
            st.builds(
                lambda sign, key, value: f"{sign}{key}={value}", st.sampled_from(["", "+", "++", "~"]), _WORDS, _VALUES
            ),
            min_size=1,
            max_size=3,
        ),
        _override,
        60,
        10,
    ),
    Target("stored configurations", lambda _: damaged(YAML) | st.binary(max_size=20), stored_bytes, 400, 50),
)
