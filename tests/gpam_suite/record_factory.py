"""Made-up records for the tests of what happens after a run (not results of anything)."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpam_suite.common.files import write_files
from gpam_suite.config.identity import config_hash, run_folder
from gpam_suite.records.folder import Record, read_record, write_record
from gpam_suite.records.lines import append_history, write_scores
from gpam_suite.report.plotting import Plot
from gpam_suite.report.tables import render_tables
from gpam_suite.stats.aggregate import read_aggregates

LABELS = {"softmax": "Softmax", "dagpam": "daGPAM", "nap": "NAP"}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "lm": {"unit": "word", "context_window": 0, "tokens_per_sample": 64, "split": "test", "checkpoint": "best"},
    "nmt": {
        "beam": 5,
        "length_penalty": 1.0,
        "checkpoint": "best",
        "averaged_checkpoints": 5,
        "sacrebleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        "split": "test",
    },
}


def make_record(
    *,
    task: str = "lm",
    experiment: str = "small_lm",
    model: str = "softmax",
    seed: int = 1,
    value: float | None = 30.0,
    options: dict[str, Any] | None = None,
    overrides_label: str = "default",
    **fields: Any,
) -> dict[str, Any]:
    """A valid record; ``value`` is the headline number, ``fields`` replace whole fields."""
    options = options or {}
    lm = task == "lm"
    dataset = "python_docs" if lm else "cldr_de_en"
    if lm:
        metrics = {"test_perplexity": value, "valid_perplexity": value and value * 1.1, "valid_loss": value and 3.4}
    else:
        metrics = {"test_bleu": value, "test_chrf": value and value + 20, "valid_bleu": value}
    mechanism = 256 if model == "dagpam" else 0
    return {
        "status": "finished",
        "reason": None,
        "experiment": experiment,
        "model": model,
        "model_label": LABELS.get(model, model),
        "options": options,
        "overrides_label": overrides_label,
        "dataset": dataset,
        "dataset_label": "Python documentation" if lm else "CLDR de-en",
        "task": task,
        "recipe": dataset,
        "seed": seed,
        "gpu": "cpu",
        "world_size": 1,
        "metrics": metrics,
        "protocol": PROTOCOLS[task],
        "parameters": {"embedding": 40_000, "attention": 30_000, "mechanism": mechanism, "other": 30_000}
        | {"total": 100_000 + mechanism},
        "flops": {"train_per_token": 600_000 + 6 * mechanism},
        "speed": {"train_seconds": 60.0, "evaluate_seconds": 2.0}
        | {"train_tokens_per_second": 9000.0 if model == "softmax" else 7000.0},
        "memory": {"peak_bytes": 400_000_000 if model == "softmax" else 440_000_000},
        "data": {"checksum": "5f2c", "name": dataset, "counts": {"train": 1000, "valid": 100, "test": 100}},
        "attention_modules": {"decoder.layers.0.self_attn": "SoftmaxAttention"},
        "versions": {"python": "3.11.9", "torch": "2.6.0"},
        "git": {"commit": "0" * 40, "dirty": False},
        "hardware": {"device": "cpu", "cpu": "made up", "cores": 2},
        "command": f"python scripts/train.py experiment={experiment} model={model} seed={seed}",
        "started": "2026-01-02T03:04:05+00:00",
        "finished": "2026-01-02T03:05:05+00:00",
        "updates": 200,
        "config_hash": config_hash({"model": model, "options": options, "seed": seed}),
        **fields,
    }


def failed(
    record: dict[str, Any], status: str = "diverged", reason: str = "loss is NaN at update 120"
) -> dict[str, Any]:
    """The record of the same run, had it come to nothing."""
    return {**record, "status": status, "reason": reason, "metrics": dict.fromkeys(record["metrics"])}


def store(results: Path, *records: dict[str, Any]) -> list[Record]:
    """Write ``records`` where runs would have written them."""
    stored = []
    for record in records:
        place = (record[key] for key in ("experiment", "model", "overrides_label", "seed", "config_hash"))
        folder = run_folder(results, *place)
        write_record(folder, record)
        stored.append(read_record(folder))
        add_config(stored[-1])
    return stored


def tabulate(results: Path) -> list[Path]:
    """The tables of every experiment alone: no figures, no page."""
    return write_files(render_tables(results, read_aggregates(results)))


def add_history(record: Record, final: float, updates: int = 200, points: int = 10) -> None:
    """A learning curve that falls to about ``final``."""
    noise = np.random.default_rng(record["seed"]).normal(0, 0.01, points)
    for point in range(points):
        update = updates * (point + 1) // points
        perplexity = final * (1 + 8 * np.exp(-4 * update / updates)) * (1 + noise[point])
        bits = float(np.log2(perplexity))
        append_history(record.folder, {"update": update, "split": "train", "loss_bits": bits - 0.1})
        valid = {"epoch": 1, "loss_bits": bits, "token_perplexity": float(perplexity)}
        append_history(record.folder, {"update": update, "split": "valid", **valid})


def add_document_scores(record: Record, documents: int = 40) -> None:
    """Documents of a common difficulty whose corpus perplexity is the record's."""
    words = np.random.default_rng(0).integers(20, 200, documents)
    difficulty = np.random.default_rng(1).normal(0, 0.3, documents)
    noise = np.random.default_rng(record["seed"]).normal(0, 0.02, documents)
    nll = words * (np.log(record.headline) + difficulty + noise)
    nll += words * (np.log(record.headline) - nll.sum() / words.sum())
    rows = [{"document": i, "words": int(words[i]), "nll": float(nll[i])} for i in range(documents)]
    write_scores(record.folder, rows)


def add_config(record: Record, **changes: Any) -> None:
    """A resolved configuration; ``changes`` are dotted names with ``__`` for the dot."""
    config: dict[str, Any] = {
        "seed": record["seed"],
        "dataset": {"name": record["dataset"]},
        "model": {"name": record["model"], **record["options"]},
        "gpu": {"name": record["gpu"]},
        "fairseq": {
            "model": {"decoder_layers": 6},
            "optimization": {"lr": [0.002], "max_update": 200, "update_freq": [2]},
            "dataset": {"max_tokens": 1024},
        },
    }
    for name, value in changes.items():
        *path, last = name.split("__")
        node = config
        for key in path:
            node = node.setdefault(key, {})
        node[last] = value
    (record.folder / "config.yaml").write_text(yaml.safe_dump(config))
    record.data["config_hash"] = config_hash(config)
    write_record(record.folder, record.data)


def painted(plot: Plot) -> list[Axes]:
    """The axes of a figure that was drawn, to look at."""
    figure = Figure()
    plot.draw(figure)
    return figure.axes
