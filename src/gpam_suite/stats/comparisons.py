"""What an experiment's runs say against softmax, computed once: the lines that tables and CSV are made of."""

from functools import cache
from typing import Any

from gpam_suite.common.tasks import TASKS
from gpam_suite.stats.rows import Aggregate, Row

Line = dict[str, Any]


def second_metrics(aggregate: Aggregate) -> list[str]:
    """The metrics beside the headline one that any finished seed has."""
    return [metric for metric in TASKS[aggregate.task].further if any(row.values(metric) for row in aggregate.rows)]


@cache
def comparisons(aggregate: Aggregate) -> list[Line]:
    """A line for each model and one for each lost seed; differences and ratios are to the baseline."""
    corrected = aggregate.corrected(aggregate.difference), aggregate.corrected(aggregate.test_set)
    lines = []
    for row in aggregate.rows:
        line = _line(aggregate, row, *corrected)
        for second in second_metrics(aggregate):
            if second != "test_chrf":  # it has its own columns, in every table
                summary = row.summary(second)
                line |= {f"{second}_mean": summary.mean, f"{second}_sd": summary.sd}
        lines.append(line)
        for lost in row.lost:
            own = {"status": lost["status"], "reason": lost["reason"], "seeds": lost["seed"]}
            shared = {key: line[key] for key in ("experiment", "model", "options", "label", "metric")}
            lines.append({**dict.fromkeys(line), **shared, **own})
    return lines


def _line(aggregate: Aggregate, row: Row, over_seeds_holm: dict[Any, float], test_set_holm: dict[Any, float]) -> Line:
    over_seeds, test_set, both = aggregate.difference(row), aggregate.test_set(row), aggregate.seeds_and_test_set(row)
    summary, chrf = row.summary(aggregate.metric), row.summary("test_chrf")
    return {
        "experiment": aggregate.experiment,
        "model": row.model,
        "options": row.overrides_label,
        "label": row.label,
        "status": "finished" if row.finished else "none finished",
        "reason": None,
        "seeds": " ".join(map(str, row.seeds)),
        "seeds_finished": len(row.finished),
        "seeds_lost": len(row.lost),
        "metric": aggregate.metric,
        "mean": summary.mean,
        "sd": summary.sd,
        "chrf_mean": chrf.mean,
        "chrf_sd": chrf.sd,
        "difference": over_seeds and over_seeds.estimate,
        "difference_low": over_seeds and over_seeds.low,
        "difference_high": over_seeds and over_seeds.high,
        "difference_method": over_seeds and over_seeds.method,
        "difference_p": over_seeds and over_seeds.p_value,
        "difference_p_holm": over_seeds_holm.get(row.key),
        "test_set_difference": test_set and test_set.estimate,
        "test_set_low": test_set and test_set.low,
        "test_set_high": test_set and test_set.high,
        "test_set_p": test_set and test_set.p_value,
        "test_set_p_holm": test_set_holm.get(row.key),
        "seeds_and_test_set_low": both and both.low,
        "seeds_and_test_set_high": both and both.high,
        "parameters": row.mean("parameters", "total"),
        "parameters_ratio": aggregate.ratio(row, "parameters", "total"),
        "parameters_mechanism": row.mean("parameters", "mechanism"),
        "train_flops_per_token": row.mean("flops", "train_per_token"),
        "train_flops_ratio": aggregate.ratio(row, "flops", "train_per_token"),
        "train_tokens_per_second": row.mean("speed", "train_tokens_per_second"),
        "speed_ratio": aggregate.ratio(row, "speed", "train_tokens_per_second", same_machine=True),
        "peak_bytes": row.mean("memory", "peak_bytes"),
        "memory_ratio": aggregate.ratio(row, "memory", "peak_bytes", same_machine=True),
    }
