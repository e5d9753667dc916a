"""The page, the CSV and the figure of all records of a benchmark's folder."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from matplotlib.figure import Figure

from gpam_suite.benchmark import record
from gpam_suite.benchmark.goals import GOALS
from gpam_suite.benchmark.kinds import KINDS
from gpam_suite.benchmark.shares import SHARES
from gpam_suite.common.files import write_files
from gpam_suite.common.formatting import MISSING, number
from gpam_suite.common.markup import markdown
from gpam_suite.report.plotting import BASELINE_DASH, GREY, Plot, legend_below, logarithmic, look, render
from gpam_suite.report.tables import csv_text, six_digits

DRAWN = (  # softmax and daGPAM in the colours that they have in all figures
    "softmax",
    "dagpam",
    "softmax-naive",
    "dagpam-naive",
    "softmax-fairseq",
    "dagpam-two-calls",
    "differential-authors",
)
PROFILED = ("stock", "softmax-sdpa", "softmax", "dagpam", "dagpam-tiled", "dagpam-naive")
"""Whose time is shown by what it goes into."""
_MIB, _GIGA = 2**20, 1e9

_INTRODUCTION = """# Speed

Made by `make benchmark` from `records/`. All contenders of a case run interleaved in one process. Times are medians
over the repeats, with the quartiles; a ratio is the median over the repeats of the ratio of two times of one repeat.
Before anything is timed, output and gradients are compared with float64 (core) or with the mechanism's weights times V
(layer, step, decoding), and prepared data byte for byte; a contender that differs gets no time.

A contender named like a mechanism is the suite's own, as a model would run it; `softmax-tiled`, `dagpam-tiled` and the
like force one backend. `stock`: fairseq's own model. `softmax-sdpa`: PyTorch's fused attention with the cheapest mask
it takes; `softmax-fairseq`: the same with the dense mask that fairseq hands it; `naive`: every matrix materialised, the
textbook formula; `dagpam-two-calls`: one fused call a branch; `differential-authors`: as in the authors' code. In the
core daGPAM's negative query is given, as its map belongs to the projections; `dagpam-and-map` has both.

Best softmax: the fastest softmax of any kind in the same case. Limit: the ratio to softmax that the count of matrix
products allows without keeping N x N numbers (`src/gpam_suite/benchmark/counting.py`); of limit: that over the ratio to
the best softmax. Peak: the most bytes held at once in one forward and backward pass beyond inputs and parameters.
GFLOP: the matrix products that run.
"""


def write_pages(output: Path) -> Path:
    """Write ``README.md``, ``benchmark.csv`` and the figures of the records in ``output``; returns the first."""
    return write_files(pages(output))[0]


def pages(output: Path) -> dict[Path, str | bytes]:
    """Path to content, nothing written yet."""
    records = record.read(output)
    lines = [flat for found in records for flat in rows(found)]
    figures = {output / f"{plot.name}.svg": render(plot) for plot in _plots(records)}
    return {output / "README.md": _page(records), output / "benchmark.csv": csv_text(six_digits(lines))} | figures


def sections(written: Sequence[Path]) -> list[str]:
    """The page's sections of some records."""
    return [_case(record.load(path)) for path in written]


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """A record's rows with what follows from the samples: medians, quartiles, ratios."""
    by_name = {row["contender"]: row for row in found["rows"]}
    base = by_name.get(KINDS[found["kind"]].baseline, {})
    softmaxes = [row["seconds"] for name, row in by_name.items() if _is_softmax(name) and row.get("seconds")]
    best = min(softmaxes, key=median, default=None)
    return [_row(found, row, base, best) for row in found["rows"]]


def _is_softmax(name: str) -> bool:
    return name.partition("-")[0] in ("softmax", "stock")


def _row(found: dict[str, Any], row: dict[str, Any], base: dict[str, Any], best: list[float] | None) -> dict[str, Any]:
    seconds = row.get("seconds")
    steps = row.get("steps", 1)
    low, middle, high = _quartiles([1000 * each / steps for each in seconds or []])
    ratio_low, ratio, ratio_high = _quartiles(_ratios(seconds, base.get("seconds")))
    to_best = _quartiles(_ratios(seconds, best))[1]
    limit, tokens = row.get("limit"), row.get("tokens")
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
        "of_limit": limit / to_best if limit and to_best else None,
        "tokens_per_second": tokens / median(seconds) if tokens and seconds else None,
        "peak_mib": _over(row.get("peak_bytes"), _MIB),
        "peak_ratio": _over(row.get("peak_bytes"), base.get("peak_bytes")),
        "larger_peak_mib": _over(row.get("larger_peak_bytes"), _MIB),
        "cache_ratio": _over(row.get("cache_bytes"), base.get("cache_bytes")),
        "gflop": _over(row.get("flops"), _GIGA),
        "error": row.get("error"),
        "note": row["note"],
    }


def _quartiles(values: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if not values:
        return None, None, None
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, median(values), high


def _ratios(seconds: list[float] | None, base: list[float] | None) -> list[float]:
    return [mine / theirs for mine, theirs in zip(seconds or [], base or [], strict=False)]


def _over(value: float | None, unit: float | None) -> float | None:
    return value / unit if value is not None and unit else None


def _page(records: list[dict[str, Any]]) -> str:
    parts = [_INTRODUCTION]
    parts += [f"![{plot.name}]({plot.name}.svg)\n\n*{plot.caption}*\n" for plot in _plots(records)]
    parts += _goals(records) + _time_shares(records)
    for name, kind in KINDS.items():
        own = [found for found in records if found["kind"] == name]
        if own:
            parts.append(f"## {kind.title}\n\n{kind.what} Ratios are to `{kind.baseline}`.\n")
        parts += [_case(found) for found in own]
    return "\n".join(parts)


def _goals(records: list[dict[str, Any]]) -> list[str]:
    """What daGPAM and the preparation of data were meant to cost, where it was measured."""
    titles = {"seconds": "time", "peak_bytes": "peak memory", "cache_bytes": "cache"}
    titles["larger_peak_bytes"] = "peak memory with the larger text"
    table = []
    for goal, found in itertools.product(GOALS, records):
        measured = goal.measured(found)
        if measured is not None:
            digits = 2 if round(goal.most, 2) == goal.most and goal.most >= 0.1 else 3
            met = "yes" if round(measured, digits) <= goal.most else "no"
            what = f"{goal.of}: {titles[goal.quantity]} to {goal.to}"
            figures = [number(goal.most, digits), number(measured, digits)]
            table.append([goal.case, record.device(found), what, *figures, met])
    if not table:
        return []
    return [
        "## Goals\n\nRatios of a contender to another, on each processor that a case was measured on.\n",
        markdown(["Case", "On", "Ratio", "At most", "Measured", "Met"], table),
    ]


def _time_shares(records: list[dict[str, Any]]) -> list[str]:
    """Where the time goes of what is not too long to be profiled."""
    table = [
        [
            found["case"],
            record.device(found),
            row["contender"],
            *(number(100 * row["shares"][kind], 0) for kind in SHARES),
        ]
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


def _case(found: dict[str, Any]) -> str:
    lines = rows(found)
    columns = {
        "ms": lambda line: _spread(line, "milliseconds"),
        "Time ×": lambda line: _spread(line, "time_ratio"),
        "To best softmax": lambda line: number(line["ratio_to_best_softmax"]),
        "Limit": lambda line: number(line["limit"]),
        "Of limit": lambda line: number(line["of_limit"]),
        "Tokens/s": lambda line: number(line["tokens_per_second"], 0),
        "Peak MiB": lambda line: number(line["peak_mib"], 1),
        "Peak ×": lambda line: number(line["peak_ratio"]),
        "With the larger text": lambda line: number(line["larger_peak_mib"], 1),
        "Cache ×": lambda line: number(line["cache_ratio"]),
        "GFLOP": lambda line: number(line["gflop"]),
        "Note": lambda line: line["note"] or MISSING,
    }
    table = {title: [cell(line) for line in lines] for title, cell in columns.items()}
    table = {title: cells for title, cells in table.items() if set(cells) != {MISSING}}
    body = [[line["contender"], *cells] for line, *cells in zip(lines, *table.values(), strict=True)]
    shape = ", ".join(f"{key} {value}" for key, value in found["shape"].items())
    title = f"### {found['case']}, {record.device(found)}"
    return f"{title}\n\n{shape}. {_where(found)}\n\n{markdown(['Contender', *table], body)}"


def _spread(line: dict[str, Any], key: str) -> str:
    if line[key] is None:
        return MISSING
    digits = 2 if line[key] < 100 else 0
    return f"{number(line[key], digits)} [{number(line[f'{key}_low'], digits)}, {number(line[f'{key}_high'], digits)}]"


def _where(found: dict[str, Any]) -> str:
    hardware, settings, versions = found["hardware"], found["settings"], found["versions"]
    source = found.get("git") or {}
    commit = f", source {source['commit'][:7]}{' with changes' if source['dirty'] else ''}" if source else ""
    return (
        f"{settings['threads']} of {hardware['cores']} cores, {settings['repeats']} repeats, "
        f"torch {versions['torch']}{commit}."
    )


def _plots(records: list[dict[str, Any]]) -> list[Plot]:
    """Time by length, a panel for causal and one for full attention on each device, of the cores without padding and
    dropout.
    """
    panels = {}
    devices = sorted({record.device(found) for found in records})
    for device, (causal, title) in itertools.product(devices, ((True, "causal"), (False, "full"))):
        own = [found for found in records if record.device(found) == device]
        drawn = [found for found in own if found["kind"] == "core" and _is_plain(found["shape"], causal)]
        if len({found["shape"]["length"] for found in drawn}) > 1:
            panels[f"{title}, {device}"] = sorted(drawn, key=lambda found: found["shape"]["length"])
    if not panels:
        return []

    def paint(figure: Figure) -> None:
        for number_of, (title, drawn) in enumerate(panels.items()):
            axes = figure.add_subplot(1, len(panels), number_of + 1, title=title, xlabel="tokens")
            axes.axhline(1, color=GREY, linestyle=BASELINE_DASH)
            for index, name in enumerate(DRAWN):
                points = [
                    (found["shape"]["length"], line["time_ratio"], line["time_ratio_low"], line["time_ratio_high"])
                    for found in drawn
                    for line in rows(found)
                    if line["contender"] == name and line["time_ratio"]
                ]
                if points:
                    x, y, low, high = zip(*points, strict=True)
                    spread = [
                        [a - b for a, b in zip(y, low, strict=True)],
                        [b - a for a, b in zip(y, high, strict=True)],
                    ]
                    axes.errorbar(x, y, yerr=spread, label=name, capsize=2, **look(index))
            axes.set_ylabel("time to softmax-sdpa")
            logarithmic(axes.xaxis)
        legend_below(figure)

    caption = "Forward and backward pass of the attention core, as time to PyTorch's fused softmax; bars are quartiles."
    return [Plot("core", caption, 3.4, paint)]


def _is_plain(shape: dict[str, Any], causal: bool) -> bool:
    odd = [shape.get("padded"), shape.get("dropout"), shape.get("source")]
    return bool(shape.get("causal")) == causal and not any(odd) and (shape["heads"], shape["head_dim"]) == (8, 64)
