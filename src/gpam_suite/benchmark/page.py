"""The page, the CSV and the figure of all records of a benchmark's folder."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from gpam_suite.benchmark import record
from gpam_suite.benchmark.kinds import KINDS
from gpam_suite.benchmark.profiling import SHARES
from gpam_suite.common.formatting import MISSING, number
from gpam_suite.common.markup import markdown
from gpam_suite.common.places import CONFIGS
from gpam_suite.records.environment import commit
from gpam_suite.report.plotting import BASELINE_DASH, GREY, Plot, legend_below, logarithmic, look, render
from gpam_suite.report.tables import csv_text, six_digits

DRAWN = (
    "softmax",
    "dagpam",
    "softmax-naive",
    "dagpam-naive",
    "softmax-fairseq",
    "dagpam-two-calls",
    "differential-authors",
)
"""In the figure: softmax and daGPAM first, for the colours that they have in all figures."""
PROFILED = ("stock", "softmax-sdpa", "softmax", "dagpam", "dagpam-tiled", "dagpam-naive")
"""Whose time is shown by what it goes into."""

PAGE = "README.md"
_INTRODUCTION = """# Speed

Made by `make benchmark` from `records/`. All contenders of a case run interleaved in one process (of a whole training
each in its own). Times are medians over the repeats, with the quartiles; a ratio is the median over the repeats of the
ratio of two times of one repeat. Before anything is timed, output and gradients are compared with float64 (core) or
with the mechanism's weights times V (layer, step, decoding), of a whole training losses without dropout; a contender
that differs gets no time.

A contender named like a mechanism is the suite's own, as a model would run it; `softmax-tiled`, `dagpam-tiled` and the
like force one backend. `stock`: fairseq's own model. `softmax-sdpa`: PyTorch's fused attention with the cheapest mask
it takes; `softmax-fairseq`: the same with the dense mask that fairseq hands it; `naive`: every matrix materialised, the
textbook formula; `dagpam-two-calls`: one fused call a branch; `differential-authors`: as in the authors' code. In the
core daGPAM's negative query is given, as its map belongs to the projections; `dagpam-and-map` has both. Of whole
trainings `NAME-own-step` has fairseq's own training step (`GPAM_FAST=0`), `NAME` that of the plugin.

Best softmax: the fastest softmax of any kind in the same case. Limit: the ratio to softmax that the count of matrix
products allows without keeping N x N numbers (`src/gpam_suite/benchmark/counting.py`); of limit: that over the ratio to
the best softmax. Peak: the most bytes held at once in one forward and backward pass beyond inputs and parameters.
GFLOP: the matrix products that run.
"""
OPENING = _INTRODUCTION.partition("from")[0]

Record = dict[str, Any]


def pages(output: Path) -> dict[Path, str | bytes]:
    """Path to content, nothing written yet."""
    records = record.read(output)
    plots = _plots(records)
    parts = [_INTRODUCTION]
    parts += [f"![{plot.name}]({plot.name}.svg)\n\n*{plot.caption}*\n" for plot in plots]
    parts += _goals(records) + _time_shares(records)
    for name, kind in KINDS.items():
        own = [found for found in records if found["kind"] == name]
        if own:
            parts.append(f"## {kind.title}\n\n{kind.what} Ratios are to `{kind.baseline}`.\n")
        parts += [section(found) for found in own]
    lines = [line for found in records for line in rows(found)]
    made: dict[Path, str | bytes] = {output / PAGE: "\n".join(parts)}
    made[output / "benchmark.csv"] = csv_text(six_digits(lines))
    return made | {output / f"{plot.name}.svg": render(plot) for plot in plots}


def rows(found: Record) -> list[dict[str, Any]]:
    """A record's rows with what follows from the samples: medians, quartiles, ratios."""
    by_name = {row["contender"]: row for row in found["rows"]}
    base = by_name.get(KINDS[found["kind"]].baseline, {})
    softmaxes = [row for name, row in by_name.items() if name.partition("-")[0] in ("softmax", "stock")]
    best = min((row["seconds"] for row in softmaxes if row.get("seconds")), key=median, default=[])
    return [_line(found, row, base, best) for row in found["rows"]]


def _line(found: Record, row: dict[str, Any], base: dict[str, Any], best: list[float]) -> dict[str, Any]:
    seconds, limit, tokens = row.get("seconds", []), row.get("limit"), row.get("tokens")
    low, middle, high = _quartiles([1000 * each / row.get("steps", 1) for each in seconds])
    ratio_low, ratio, ratio_high = _quartiles(_ratios(seconds, base.get("seconds", [])))
    to_best = _quartiles(_ratios(seconds, best))[1]
    return {
        "case": found["case"],
        "device": record.device(found),
        "threads": found["settings"]["threads"],
        "kind": found["kind"],
        "contender": row["contender"],
        "milliseconds": middle,
        "milliseconds_low": low,
        "milliseconds_high": high,
        "time_ratio": ratio,
        "time_ratio_low": ratio_low,
        "time_ratio_high": ratio_high,
        "ratio_to_best_softmax": to_best,
        "limit": limit,
        "of_limit": _over(limit, to_best),
        "tokens_per_second": tokens / median(seconds) if tokens and seconds else None,
        "peak_mib": _over(row.get("peak_bytes"), 2**20),
        "peak_ratio": _over(row.get("peak_bytes"), base.get("peak_bytes")),
        "cache_ratio": _over(row.get("cache_bytes"), base.get("cache_bytes")),
        "gflop": _over(row.get("flops"), 1e9 * row.get("steps", 1)),
        "error": row.get("error"),
        "note": row["note"],
    }


def _quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    return tuple(np.quantile(values, (0.25, 0.5, 0.75)).tolist()) if values else (None, None, None)


def _ratios(seconds: list[float], base: list[float]) -> list[float]:
    return [mine / theirs for mine, theirs in zip(seconds, base, strict=False)]


def _over(value: float | None, unit: float | None) -> float | None:
    return value / unit if value is not None and unit else None


def measured(goal: Mapping[str, Any], found: Record) -> float | None:
    """The ratio that one of the ``goals`` of ``configs/benchmark.yaml`` is about; None where the record is of another
    case or one of the two contenders is missing."""
    rows = {row["contender"]: row for row in found["rows"]}
    quantity = goal.get("quantity", "seconds")
    ours = rows.get(goal.get("of", "dagpam"), {}).get(quantity)
    theirs = rows.get(goal["to"], {}).get(quantity)
    if found["case"] != goal["case"] or not ours or not theirs:
        return None
    return median(_ratios(ours, theirs)) if quantity == "seconds" else ours / theirs


def _goals(records: list[Record]) -> list[str]:
    """What daGPAM and the fast step were meant to cost, where it was measured."""
    titles = {"seconds": "time", "peak_bytes": "peak memory", "cache_bytes": "cache"}
    table = []
    for goal, found in itertools.product(OmegaConf.load(CONFIGS / "benchmark.yaml").goals, records):
        ratio, most = measured(goal, found), goal.most
        if ratio is not None:
            digits = 2 if round(most, 2) == most and most >= 0.1 else 3
            what = f"{goal.get('of', 'dagpam')}: {titles[goal.get('quantity', 'seconds')]} to {goal.to}"
            met = "yes" if round(ratio, digits) <= most else "no"
            table.append([goal.case, record.device(found), what, number(most, digits), number(ratio, digits), met])
    if not table:
        return []
    title = "## Goals\n\nRatios of a contender to another, on each processor that a case was measured on.\n"
    return [title, markdown(["Case", "On", "Ratio", "At most", "Measured", "Met"], table)]


def _time_shares(records: list[Record]) -> list[str]:
    """Where the time goes of what is not too long to be profiled."""
    table = [
        [found["case"], record.device(found), row["contender"], *(number(100 * row["shares"][of], 0) for of in SHARES)]
        for found in records
        for row in found["rows"]
        if row["contender"] in PROFILED and row.get("shares")
    ]
    if not table:
        return []
    what = (
        "## Where the time goes\n\nOf one pass (of decoding: of a whole one) on a CPU, in percent, by PyTorch's "
        "profiler: matrix products (PyTorch's fused kernel counts as one), softmax and its backward, copies, other "
        "passes over numbers, and the rest: Python and the calls themselves, which the profiler makes slower.\n"
    )
    return [what, markdown(["Case", "On", "Contender", *(kind.capitalize() for kind in SHARES)], table)]


def section(found: Record) -> str:
    """The page's section of a record."""
    columns = {
        "ms": lambda line: _spread(line, "milliseconds"),
        "Time ×": lambda line: _spread(line, "time_ratio"),
        "To best softmax": lambda line: number(line["ratio_to_best_softmax"]),
        "Limit": lambda line: number(line["limit"]),
        "Of limit": lambda line: number(line["of_limit"]),
        "Tokens/s": lambda line: number(line["tokens_per_second"], 0),
        "Peak MiB": lambda line: number(line["peak_mib"], 1),
        "Peak ×": lambda line: number(line["peak_ratio"]),
        "Cache ×": lambda line: number(line["cache_ratio"]),
        "GFLOP": lambda line: number(line["gflop"]),
        "Note": lambda line: line["note"] or MISSING,
    }
    lines = rows(found)
    table = {title: [cell(line) for line in lines] for title, cell in columns.items()}
    table = {title: cells for title, cells in table.items() if set(cells) != {MISSING}}
    body = [[line["contender"], *cells] for line, *cells in zip(lines, *table.values(), strict=True)]
    shape = ", ".join(f"{key} {value}" for key, value in found["shape"].items())
    settings = found["settings"]
    where = f"{settings['threads']} of {found['hardware']['cores']} cores, {settings['repeats']} repeats"
    title = (
        f"### {found['case']}, {record.device(found)}\n\n{shape}. {where}, torch {found['versions']['torch']}, "
        f"commit {commit(found.get('git'))}."
    )
    return f"{title}\n\n{markdown(['Contender', *table], body)}"


def _spread(line: dict[str, Any], key: str) -> str:
    if line[key] is None:
        return MISSING
    digits = 2 if line[key] < 100 else 0
    return f"{number(line[key], digits)} [{number(line[f'{key}_low'], digits)}, {number(line[f'{key}_high'], digits)}]"


def _plots(records: list[Record]) -> list[Plot]:
    """Time by length, a panel for causal and one for full attention on each device, of the cores that
    :func:`_is_plain`."""
    panels = {}
    devices = sorted({record.device(found) for found in records})
    for device, (causal, title) in itertools.product(devices, ((True, "causal"), (False, "full"))):
        own = [found for found in records if record.device(found) == device and _is_plain(found, causal)]
        if len({found["shape"]["length"] for found in own}) > 1:
            panels[f"{title}, {device}"] = sorted(own, key=lambda found: found["shape"]["length"])
    if not panels:
        return []

    def paint(figure: Figure) -> None:
        for place, (title, drawn) in enumerate(panels.items(), start=1):
            axes = figure.add_subplot(1, len(panels), place, title=title, xlabel="tokens")
            axes.axhline(1, color=GREY, linestyle=BASELINE_DASH)
            lines = [(found["shape"]["length"], line) for found in drawn for line in rows(found)]
            for index, name in enumerate(DRAWN):
                points = [
                    (length, line["time_ratio"], line["time_ratio_low"], line["time_ratio_high"])
                    for length, line in lines
                    if line["contender"] == name and line["time_ratio"]
                ]
                if points:
                    x, y, low, high = np.array(points).T
                    axes.errorbar(x, y, yerr=[y - low, high - y], label=name, capsize=2, **look(index))
            axes.set_ylabel("time to softmax-sdpa")
            logarithmic(axes.xaxis)
        legend_below(figure)

    caption = (
        "Forward and backward pass of the attention core, 8 heads of 64, as time to PyTorch's fused softmax; bars are "
        "quartiles."
    )
    return [Plot("core", caption, 3.4, paint)]


def _is_plain(found: Record, causal: bool) -> bool:
    shape = found["shape"]
    odd = [shape.get(key) for key in ("padded", "dropout", "source", "dtype")]
    sizes = (shape.get("heads"), shape.get("head_dim"))
    return found["kind"] == "core" and bool(shape.get("causal")) == causal and not any(odd) and sizes == (8, 64)
