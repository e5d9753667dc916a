"""One bit of one file of a finished run flipped, again and again: nothing that is read from it changes unseen."""

import dataclasses
import json
import logging
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from record_factory import make_record
from runs import tiny, train_here

from gpam.attention.backends import calibration
from gpam.errors import UsageError
from gpam_suite.config.compose import folder_of, identity
from gpam_suite.config.identity import config_hash
from gpam_suite.data import prepare
from gpam_suite.data.store.stages import STAGES
from gpam_suite.evaluate.checkpoint import read_checkpoint
from gpam_suite.evaluate.trained import checkpoint_of, open_trained
from gpam_suite.records import store
from gpam_suite.records.folder import write_record
from gpam_suite.records.lines import read_scores
from gpam_suite.run.outcomes import OUTCOME
from gpam_suite.stats.aggregate import aggregate
from gpam_suite.stats.bootstrap import resample
from soak.bits import unequal
from soak.parts import Figures

KINDS = {
    "text": "text-lm/*.txt",
    "stages": f"data/{STAGES}/*/*",
    "preparation": "data/local_lm-*/**/*",
    "configuration": "results/runs/*/*/*/config.yaml",
    "record": "results/runs/*/*/*/record.json",
    "scores": "results/runs/*/*/*/scores.jsonl",
    "checkpoints": "results/runs/*/*/*/checkpoints/*.pt",
    "backends": f"results/runs/*/*/*/{calibration.FILE}",
    "analysis": f"results/{store.FOLDER}/*.json",
}
"""What a run reads, or is read of it, and decides a number. Its history carries no checksum: curves are drawn of it."""


ANALYSIS = {"test_perplexity": 141.186, "modules": {"layers.0": [0.25, None]}}


def soak() -> Figures:
    """100 flips of each kind of file."""
    return campaign(100)


def campaign(each: int, seed: int = 0) -> Figures:
    """``each`` flips of a random bit of a random file of every kind.

    Raises:
        AssertionError: something else was read than what had been written.
    """
    draw, found = random.Random(seed), Counter(refused=0, unchanged=0)
    logging.disable(logging.WARNING)  # of what is made again
    try:
        with tempfile.TemporaryDirectory() as folder:
            base, whole = Path(folder) / "run", Path(folder) / "whole"
            cfg = _run(base)
            shutil.copytree(base, whole)
            wanted = _read(cfg)
            for kind, pattern in KINDS.items():
                files = sorted(path for path in base.glob(pattern) if path.is_file() and path.stat().st_size)
                for _ in range(each):
                    if kind == "stages":  # which are read where no preparation is made of them yet
                        shutil.rmtree(next(base.glob("data/local_lm-*")))
                    found[_flipped(cfg, draw.choice(files), draw, wanted)] += 1
                    shutil.rmtree(base)
                    shutil.copytree(whole, base)
    finally:
        logging.disable(logging.NOTSET)
    return {"flips": sum(found.values()), "each": each, "kinds": ", ".join(KINDS), **found}


def _flipped(cfg: DictConfig, path: Path, draw: random.Random, wanted: dict[str, Any]) -> str:
    content = bytearray(path.read_bytes())
    bit = draw.randrange(8 * len(content))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    try:
        found = _read(cfg)
    except UsageError:
        return "refused"
    assert not unequal(wanted, found), f"bit {bit} of {path.name} gave something else: {unequal(wanted, found)}"
    return "unchanged"


def _run(base: Path) -> DictConfig:
    """A tiny language model with its record, below ``base``."""
    cfg = tiny(base)
    folder = train_here(cfg)
    outcome = json.loads((folder / OUTCOME).read_text(encoding="utf-8"))
    prepared = prepare(cfg.dataset, cfg.preprocessing, cfg.paths)
    data = {"checksum": prepared.manifest["checksum"], "name": cfg.dataset.name, "counts": {}}
    known = {name: outcome[name] for name in ("metrics", "protocol", "parameters", "flops", "updates", "checksums")}
    record = make_record(experiment=cfg.experiment_name, config_hash=config_hash(identity(cfg)), data=data, **known)
    write_record(folder, record)
    store.write(store.path_of(Path(cfg.paths.results), "numbers"), ANALYSIS)
    return cfg


def _read(cfg: DictConfig) -> dict[str, Any]:
    """Everything that training, resuming, evaluating and tabulating read of the run."""
    manifest = prepare(cfg.dataset, cfg.preprocessing, cfg.paths).manifest
    trained = open_trained(folder_of(cfg), cfg.paths, cpu=True)
    last = read_checkpoint(checkpoint_of(trained.folder, "last"))
    aggregate([trained.record])
    resample(trained.record)
    backends = calibration.keep(trained.folder, resumed=True, write=False)
    calibration.use(None)
    analysis = store.read(store.path_of(Path(cfg.paths.results), "numbers"))
    return {
        "data": {name: of["sha256"] for name, of in manifest["files"].items()},
        "record": trained.record.data,
        "scores": read_scores(trained.folder),
        "backends": dataclasses.asdict(backends),
        "analysis": {name: analysis[name] for name in ANALYSIS},
        "model": dict(trained.model().state_dict()),
        "last": {part: last[part] for part in ("model", "last_optimizer_state", "optimizer_history", "extra_state")},
    }
