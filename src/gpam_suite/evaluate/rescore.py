"""Evaluate a trained run once more, by its own protocol or another, without touching its record."""

import json
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError
from gpam_suite.config.compose import check_window, fairseq_config, stored
from gpam_suite.config.run_paths import CHECKPOINTS, CONFIG, place
from gpam_suite.data import prepare
from gpam_suite.evaluate.checkpoint import load_model
from gpam_suite.evaluate.score import evaluate
from gpam_suite.records.folder import config_hash, write_atomically


def evaluate_again(cfg: DictConfig) -> None:
    """Evaluate the checkpoint of ``cfg.run`` and write ``<run>/evaluations/<hash>/`` with metrics and scores."""
    if cfg.run is None:
        raise UsageError("no run was named; give its folder: python scripts/evaluate.py run=results/local/runs/...")
    folder = Path(cfg.run)
    if not (folder / CONFIG).is_file():
        raise UsageError(f"run: {folder} is not a run's folder (it has no {CONFIG}); wanted one under <results>/runs/")
    own = stored(folder / CONFIG)
    given = {key: value for key, value in cfg.evaluation.items() if value is not None}
    inapplicable = [key for key in given if key not in own.evaluation]
    if inapplicable:
        raise UsageError(f"evaluation.{inapplicable[0]} does not apply to a {own.dataset.task} run; leave it out")
    evaluation = OmegaConf.merge(own.evaluation, given)
    complete = fairseq_config(own)
    check_window(OmegaConf.merge(own, {"evaluation": evaluation}), complete)
    prepared = prepare(own.dataset, own.preprocessing, cfg.paths)
    torch.set_num_threads(cfg.threads)
    place(complete, folder, prepared)

    from fairseq import tasks

    task = tasks.setup_task(complete.task)
    name = str(evaluation.checkpoint)
    checkpoint = Path(name) if name.endswith(".pt") else folder / CHECKPOINTS / f"checkpoint_{name}.pt"
    model = load_model(checkpoint, complete, task)
    target = folder / "evaluations" / config_hash(OmegaConf.to_container(evaluation))
    metrics, protocol = evaluate(model, task, prepared, evaluation, target)
    result = {"metrics": metrics, "protocol": protocol}
    write_atomically(target / "evaluation.json", json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
