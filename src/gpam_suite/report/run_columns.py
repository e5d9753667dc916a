"""``runs.csv`` and ``curves.csv``: what is published of each run, a number a column; and what all columns mean."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpam_suite.common.markup import markdown
from gpam_suite.records.folder import Record
from gpam_suite.records.history_rows import mean_of
from gpam_suite.records.lines import read_history
from gpam_suite.records.metrics import METRICS
from gpam_suite.stats.aggregate import model_label
from gpam_suite.stats.curves import perplexity, scored_update
from gpam_suite.stats.rows import Aggregate, Row

_KINDS, _LAMBDAS, _STACKS = ("query", "key", "value"), ("lambda_pos", "lambda_neg"), ("encoder", "decoder")
_COLLAPSE = {
    "residual": "relative residual behind the last layer (0: all tokens are equal)",
    "cosine": "mean cosine similarity of tokens behind the last layer (1: all point the same way)",
    "stable_rank": "stable rank of the tokens behind the last layer",
    "effective_rank": "effective rank of the tokens behind the last layer",
}
_FIELDS = {
    "experiment": ("name of the experiment; its runs share data, recipe and protocol", "experiment"),
    "dataset": ("data set", "dataset"),
    "task": ("lm (language modelling), nmt (translation) or recall", "task"),
    "model": ("configuration of the model, `configs/model/`", "model"),
    "label": ("what tables and figures call the model", "model_label"),
    "options": (
        "options that are not the model's own, and what of its training is not as usual in its experiment; `default`: "
        "nothing",
        "overrides_label",
    ),
    "seed": ("seed of parameters, dropout and order of the data", "seed"),
    "status": ("finished, failed or diverged", "status"),
    "reason": ("why it did not finish", "reason"),
    **{metric: (meaning, f"metrics.{metric}") for metric, meaning in METRICS.items()},
    "unit": ("what perplexity is counted by", "protocol.unit"),
    "sacrebleu": ("sacreBLEU's signature: case, tokeniser, version", "protocol.sacrebleu"),
    "references": (
        "tokenised or lower-cased references; empty: raw, cased text, or a run from before this was recorded (the "
        "IWSLT14 sample, see `early-training.md`)",
        "protocol.references",
    ),
    "updates": ("updates of training", "updates"),
    "scored_update": (
        "update of the scored checkpoint: of the lowest validation loss, to three decimals (of equals the later), or "
        "the last where that is scored",
        "scored_update",
    ),
    "parameters": ("parameters in all", "parameters.total"),
    "parameters_mechanism": ("of these, what the mechanism adds to softmax", "parameters.mechanism"),
    "train_flops_per_token": ("floating-point operations of training, a token, counted", "flops.train_per_token"),
    "train_tokens_per_second": (
        "median over training, whatever else the machine did; before commit `3740c53` validations, which are faster, "
        "counted as well",
        "speed.train_tokens_per_second",
    ),
    "train_seconds": (
        "seconds from the start of training to its last checkpoint, with validations, and with pauses of the machine",
        "speed.train_seconds",
    ),
    "peak_bytes": ("most memory held, in bytes", "memory.peak_bytes"),
    **{
        f"gradient_{kind}": (
            f"norm of the loss' gradient in the {kind} projections: median over training, mean over modules",
            f"gradient_norms.{kind}",
        )
        for kind in _KINDS
    },
    **{
        name: (
            f"{name} of the model; where it is learned, its mean over modules at the end (empty: none of that name)",
            name,
        )
        for name in _LAMBDAS
    },
    "recipe": ("recipe of training, `configs/recipe/`", "recipe"),
    "data_checksum": ("SHA-256 of the prepared data", "data.checksum"),
    "config_hash": ("of every setting that can change a number", "config_hash"),
    "commit": (
        "commit that the run was made with; `5b56efc` and `a8dbdf7` (early training) are not in the history",
        "git.commit",
    ),
    "processor": ("processor it ran on", "hardware.processor"),
    "gpu": ("GPU it ran on", "hardware.gpu"),
    "started": ("when; of a run that went on after a stop, when it did so last", "started"),
}
"""Column to what it means and its place in a record; gradients and lambdas are means over modules (:func:`_value`)."""
_INSIDE = {f"{name}_{stack}": f"{meaning}, {stack}" for stack in _STACKS for name, meaning in _COLLAPSE.items()}
"""Columns that are read from a run's analysis (``make analyse``)."""
_OF_THE_RUN = ("experiment", "model", "options", "seed", "config_hash")
_OF_A_VALIDATION = {
    "update": "how many updates had been made",
    "epoch": "in which epoch that was",
    "token_perplexity": "validation perplexity per token, without label smoothing",
    "loss_bits": "validation loss in bits per token; in translation with its label smoothing",
}
_OF_A_MODEL = {
    "experiment model options label": "as in `runs.csv`; the label with what of the training is not as usual",
    "status reason": "`finished` in the row of a model; each of its runs that was lost has a row with its own",
    "seeds seeds_finished seeds_lost": "seeds that finished (or that of a lost run), their number, how many were lost",
    "metric mean sd": "the headline metric on the test set: name, mean and sample standard deviation over seeds",
    "chrf_mean chrf_sd": "the same of chrF; other metrics have columns of their own names at the end",
    "difference difference_low difference_high": "less softmax's, over the seeds of both, with its 95 % interval",
    "difference_method": "how that interval was made: paired over these seeds, Welch's where none is shared",
    "difference_p difference_p_holm": "its p value, and that with Holm's correction over the models of the experiment "
    "(over all comparisons of a plan: on its page, and in `comparisons/`)",
    "test_set_difference test_set_low test_set_high": "the same difference, with its 95 % interval over the test set",
    "test_set_p test_set_p_holm": "its p value, and that with Holm's correction",
    "seeds_and_test_set_low seeds_and_test_set_high": "95 % interval over seeds and test set together",
    "parameters parameters_ratio parameters_mechanism": "parameters, over softmax's, and what the mechanism adds",
    "train_flops_per_token train_flops_ratio": "floating-point operations of training, a token, and over softmax's",
    "train_tokens_per_second speed_ratio": "mean over seeds; over softmax's where all ran on one kind of machine",
    "peak_bytes memory_ratio": "most memory held; over softmax's where all ran on one kind of machine",
}
"""Columns of ``comparisons.csv`` that belong together, and what they mean."""


def _value(record: Record, row: Row, place: str) -> Any:
    first, *rest = place.split(".")
    if first == "overrides_label":  # with what of the row's training is not as usual
        return row.overrides_label
    if first == "gradient_norms":
        return mean_of(record.at(first), *rest)
    if first == "scored_update":
        return scored_update(record)
    if first == "model_label":
        return model_label(record)
    if first in _LAMBDAS:
        how = record["options"].get("lambdas", "fixed")
        shared = how == "trainable_equal"  # one number for both
        learned = mean_of(record.at("learned_scalars"), "lambda_pos" if shared else first)
        return record["options"].get(first) if learned is None and how == "fixed" else learned
    return record.at(first, *rest)


def run_rows(aggregates: Sequence[Aggregate], analyses: Mapping[Any, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each run; ``analyses`` maps a run's folder to what ``make analyse`` found in it."""
    rows = []
    for record, row in _runs(aggregates):
        streams = analyses.get(record.folder, {}).get("streams", {})
        inside = [streams[stack][name][-1] if stack in streams else None for stack in _STACKS for name in _COLLAPSE]
        own = {name: _value(record, row, place) for name, (_, place) in _FIELDS.items()}
        rows.append(own | dict(zip(_INSIDE, inside, strict=True)))
    return rows


def curve_rows(aggregates: Sequence[Aggregate]) -> list[dict[str, Any]]:
    """A row for each validation of each run; where a resumed run came by an update twice, the later one."""
    rows = []
    for record, row in _runs(aggregates):
        own = {name: _value(record, row, _FIELDS[name][1]) for name in _OF_THE_RUN}
        points = {point["update"]: point for point in read_history(record.folder, "valid")}
        for point in points.values():
            known = point | {"token_perplexity": perplexity(point)}
            rows.append(own | {name: known.get(name) for name in _OF_A_VALIDATION})
    return rows


def _runs(aggregates: Sequence[Aggregate]) -> list[tuple[Record, Row]]:
    """Every run and its row, by folders."""
    runs = ((record, row) for one in aggregates for row in one.rows for record in row.records)
    return sorted(runs, key=lambda run: run[0].folder)


def columns_page() -> str:
    """What the columns mean, for ``columns.md``."""
    runs = {name: meaning for name, (meaning, _) in _FIELDS.items()} | _INSIDE
    curves = dict.fromkeys(_OF_THE_RUN, "") | {"experiment": "as in `runs.csv`, like the next four"} | _OF_A_VALIDATION
    parts = [
        "# Columns\n",
        "Made by `python scripts/publish.py`. An empty cell: not known, or not of this kind of run.\n",
        "## runs.csv, a row a run\n",
        markdown(["Column", "Meaning"], [[f"`{name}`", meaning] for name, meaning in runs.items()]),
        "## curves.csv, a row a validation\n",
        markdown(["Column", "Meaning"], [[f"`{name}`", meaning] for name, meaning in curves.items()]),
        "## comparisons.csv, a row a model\n",
        "An arm of a claim is here when it has all seeds of its plan. A claim's own tests, of the log of perplexity "
        "and with their own correction, are in `comparisons/`.\n",
        markdown(["Column", "Meaning"], [[f"`{name}`", meaning] for name, meaning in _OF_A_MODEL.items()]),
    ]
    return "\n".join(parts)
