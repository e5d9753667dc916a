"""``runs.csv`` and ``curves.csv``: what is published of each run, a number a column."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpam_suite.records.folder import Record, read_history
from gpam_suite.records.metrics import METRICS
from gpam_suite.stats.curves import QUANTITIES
from gpam_suite.stats.inside_models import mean_of

_COLLAPSE = {
    "residual": "relative residual behind the last layer (0: all tokens are equal)",
    "cosine": "mean cosine similarity of tokens behind the last layer (1: all point the same way)",
    "effective_rank": "effective rank of the tokens behind the last layer",
}
_OPTIONS = ("lambda_pos", "lambda_neg")


def _field(*path: str) -> Callable[[Record], Any]:
    return lambda record: record.at(*path)


def _lambda(record: Record, name: str) -> float | None:
    learned = mean_of(record.data.get("learned_scalars"), name)
    return record["options"].get(name) if learned is None else learned


RUN_COLUMNS: dict[str, tuple[str, Callable[[Record], Any]]] = {
    "experiment": ("name of the experiment; its runs share data, recipe and protocol", _field("experiment")),
    "dataset": ("data set", _field("dataset")),
    "task": ("lm (language modelling), nmt (translation) or recall", _field("task")),
    "model": ("configuration of the model, `configs/model/`", _field("model")),
    "label": ("what tables and figures call the model", _field("model_label")),
    "options": ("options that are not the model's own; `default`: none", _field("overrides_label")),
    "seed": ("seed of parameters, dropout and order of the data", _field("seed")),
    "status": ("finished, failed or diverged", _field("status")),
    "reason": ("why it did not finish", _field("reason")),
    **{metric: (meaning, _field("metrics", metric)) for metric, meaning in METRICS.items()},
    "unit": ("what perplexity is counted by", _field("protocol", "unit")),
    "sacrebleu": ("sacreBLEU's signature: case, tokeniser, version", _field("protocol", "sacrebleu")),
    "references": (
        "tokenised or lower-cased references; empty: raw, cased text, or a run from before this was recorded (the "
        "IWSLT14 sample, see `early-training.md`)",
        _field("protocol", "references"),
    ),
    "updates": ("updates of training", _field("updates")),
    "parameters": ("parameters in all", _field("parameters", "total")),
    "parameters_mechanism": ("of these, what the mechanism adds to softmax", _field("parameters", "mechanism")),
    "train_flops_per_token": (
        "floating-point operations of training, a token, counted",
        _field("flops", "train_per_token"),
    ),
    "train_tokens_per_second": (
        "median over training, whatever else the machine did",
        _field("speed", "train_tokens_per_second"),
    ),
    "train_seconds": ("seconds of training", _field("speed", "train_seconds")),
    "peak_bytes": ("most memory held, in bytes", _field("memory", "peak_bytes")),
    **{
        f"gradient_{kind}": (
            f"norm of the loss' gradient in the {kind} projections: median over training, mean over modules",
            lambda record, kind=kind: mean_of(record.data.get("gradient_norms"), kind),
        )
        for kind in ("query", "key", "value")
    },
    **{
        name: (
            f"{name} of the model; where it is learned, its mean over modules at the end",
            lambda record, name=name: _lambda(record, name),
        )
        for name in _OPTIONS
    },
    "recipe": ("recipe of training, `configs/recipe/`", _field("recipe")),
    "data_checksum": ("SHA-256 of the prepared data", _field("data", "checksum")),
    "config_hash": ("of every setting that can change a number", _field("config_hash")),
    "commit": ("commit of this project that the run was made with", _field("git", "commit")),
    "processor": ("processor it ran on", _field("hardware", "processor")),
    "gpu": ("GPU it ran on", _field("hardware", "gpu")),
    "started": ("when", _field("started")),
}
"""Column to what it means and how it is read from a record."""
INSIDE_COLUMNS = {
    f"{name}_{stack}": f"{meaning}, {stack}" for stack in ("encoder", "decoder") for name, meaning in _COLLAPSE.items()
}
"""Columns that are read from a run's analysis (``make analyse``)."""
CURVE_COLUMNS = {
    "experiment": "as in `runs.csv`, like the next four",
    "model": "",
    "options": "",
    "seed": "",
    "config_hash": "",
    "update": "how many updates had been made",
    "epoch": "in which epoch that was",
    **{
        name: f"validation {words.removesuffix(' per').removesuffix(' in bits per')} per token"
        for name, words in QUANTITIES.items()
    },
}


def run_rows(records: Sequence[Record], analyses: Mapping[Any, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each record; ``analyses`` maps a run's folder to what ``make analyse`` found in it."""
    return [
        {name: read(record) for name, (_, read) in RUN_COLUMNS.items()} | _inside(analyses.get(record.folder))
        for record in records
    ]


def _inside(analysis: Mapping[str, Any] | None) -> dict[str, float | None]:
    streams = analysis["streams"] if analysis else {}
    return {
        f"{name}_{stack}": streams[stack][name][-1] if stack in streams else None
        for stack in ("encoder", "decoder")
        for name in _COLLAPSE
    }


def curve_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """A row for each validation of each run; where a resumed run came by an update twice, the later one."""
    rows = []
    for record in records:
        own = {name: RUN_COLUMNS[name][1](record) for name in list(CURVE_COLUMNS)[:5]}
        points = {row["update"]: row for row in read_history(record.folder) if row.get("split") == "valid"}
        rows += [own | {name: point.get(name) for name in list(CURVE_COLUMNS)[5:]} for point in points.values()]
    return rows
