"""Evaluate a trained run once more, by its own protocol or another, without touching its record."""

import json
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from gpam.errors import UsageError
from gpam_suite.common import strict_json
from gpam_suite.common.files import write_atomically
from gpam_suite.common.options import whole_number
from gpam_suite.common.tasks import TASKS
from gpam_suite.config.compose import check_evaluation
from gpam_suite.config.identity import config_hash
from gpam_suite.data.second_test import keep_second_test
from gpam_suite.evaluate.limits import check_lengths
from gpam_suite.evaluate.references import check_references
from gpam_suite.evaluate.score import evaluate
from gpam_suite.evaluate.trained import open_trained


def evaluate_again(cfg: DictConfig) -> None:
    """Evaluate the checkpoint of ``cfg.run`` and write ``<run>/evaluations/<hash>/`` with metrics and scores."""
    if cfg.run is None:
        raise UsageError("no run was named; give its folder: python scripts/evaluate.py run=results/local/runs/...")
    folder = Path(cfg.run)
    run = open_trained(folder, cfg.paths)
    given = {key: value for key, value in cfg.evaluation.items() if value is not None}
    own = [*run.cfg.evaluation, *(["second_test"] if TASKS[run.cfg.dataset.task].parallel else [])]
    inapplicable = [key for key in given if key not in own]
    if inapplicable:
        raise UsageError(f"evaluation.{inapplicable[0]} does not apply to a {run.cfg.dataset.task} run; leave it out")
    whole = OmegaConf.merge(run.cfg, {"paths": cfg.paths})
    whole.evaluation = evaluation = OmegaConf.create({**run.cfg.evaluation, **given})
    check_evaluation(whole, run.complete)
    torch.set_num_threads(whole_number(cfg.threads, 1, "threads"))
    model = run.model(str(evaluation.checkpoint))
    target = folder / "evaluations" / config_hash(OmegaConf.to_container(evaluation))
    keep_second_test(whole, target)
    check_references(evaluation, run.prepared, target)
    check_lengths(evaluation, run.complete, run.prepared, target)
    metrics, protocol = evaluate(model, run.task, run.prepared, evaluation, target)
    result = strict_json.with_nulls({"metrics": metrics, "protocol": protocol})
    write_atomically(target / "evaluation.json", json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
