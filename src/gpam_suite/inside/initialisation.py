"""Every mechanism of the registry before its first update, on a language model and on translation, and the price of
logging gradients."""

import logging
import statistics
import time
from pathlib import Path
from typing import Any

from gpam_fairseq.trainer.histories import measure

import torch
from omegaconf import DictConfig

from gpam.attention import names
from gpam_suite.inside import store
from gpam_suite.inside.look import look
from gpam_suite.inside.models import composed, untrained
from gpam_suite.inside.texts import texts

log = logging.getLogger(__name__)
_REPEATS = 5


def analyse_initialisation(results: Path, task: str, settings: DictConfig, paths: Any) -> Path:
    """``<results>/analysis/initialisation-<task>.json``: what :func:`look` finds for each mechanism with the options of
    its ``configs/model/``, on the experiment that ``settings.experiments`` names for ``task``."""
    experiment, seed = settings.experiments[task], settings.seed
    found: dict[str, Any] = {"task": task, "experiment": experiment, "seed": seed, "models": {}}
    for number, name in enumerate(names(), start=1):
        cfg = composed(f"experiment={experiment}", f"model={name}", f"seed={seed}")
        model, fairseq_task, prepared = untrained(cfg, paths)
        found["dataset_label"] = cfg.dataset.label
        found["models"][name] = {"label": cfg.model.label, **look(model, fairseq_task, prepared, settings.texts[task])}
        if name == "dagpam":
            found["logging"] = {
                "model": name,
                "every": cfg.fairseq.common.log_interval,
                **_price(model, texts(fairseq_task, prepared, 1)),
            }
        log.info("[%d/%d] %s at initialisation, %s", number, len(names()), name, experiment)
    return store.write(store.path_of(results, f"initialisation-{task}"), found)


def _price(model: torch.nn.Module, chosen: list[Any]) -> dict[str, float]:
    """Seconds of one forward and backward pass of one text, and of reading the norms of its gradients: medians."""
    text, step, reading = chosen[0], [], []
    for _ in range(_REPEATS):
        model.zero_grad()
        start = time.perf_counter()
        text.loss(model).backward()
        middle = time.perf_counter()
        measure(model)
        step.append(middle - start)
        reading.append(time.perf_counter() - middle)
    model.zero_grad()
    return {"step_seconds": statistics.median(step), "reading_seconds": statistics.median(reading)}
