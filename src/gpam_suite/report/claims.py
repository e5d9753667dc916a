"""The tables of a claim of the paper's: verdict, gate and comparisons, as :mod:`gpam_suite.stats.claim` has them."""

import math
from collections.abc import Sequence
from pathlib import Path

from gpam_suite.common import formatting
from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import markdown
from gpam_suite.records.metrics import LOWER_IS_BETTER
from gpam_suite.stats.aggregate import Aggregate
from gpam_suite.stats.claim import Comparison, Finding, as_json, findings

_TRAINED = {True: "yes", False: "no", None: "not known yet"}
_WHAT = {
    True: "A gain is the percentage by which the first model's perplexity is lower, its spread that of the log.",
    False: "A gain is how many points the first model's score is higher.",
}
"""By whether a lower metric is better."""


def render_claims(results: Path, aggregates: Sequence[Aggregate]) -> dict[Path, str]:
    """``comparisons/<experiment>.json`` and ``tables/<experiment>-claim.md`` of every claim that has runs."""
    files: dict[Path, str] = {}
    for name, found in findings(results, aggregates).items():
        files[results / "comparisons" / f"{safe_name(name)}.json"] = as_json(found)
        files[results / "tables" / f"{safe_name(name)}-claim.md"] = page(found)
    return files


def page(found: Finding) -> str:
    """The tables of one claim, in Markdown."""
    claim, (primary, *secondary) = found.claim, found.comparisons
    effect = _gain(found, found.effect)
    head = ["Claim", "The paper", "Here: gain [95 %]", "Verdict", "Trained?"]
    row = [claim.title, papers_gain(found), *standing(found)]
    parts = [
        f"# {claim.title}\n",
        markdown(head, [row]),
        f"Trained?: {'; '.join(found.gate.reasons)}.\n",
        f"Standard deviation of the gain over seeds: {_spread(found, primary)}.\n",
        f"{_WHAT[found.metric in LOWER_IS_BETTER]} p values are of paired t tests: against no gain, against a gain of "
        f"{effect} or more (below 0.05: excluded), and against one of that size in either direction (below 0.05: "
        "equivalent). All but the first are secondary, with Holm's correction.\n",
        markdown(
            ["Model", "Against", "Seeds", "Gain [95 %]", "p", "p, Holm", "p, the paper's gain", "p, equivalent"],
            [_row(found, one) for one in (primary, *secondary)],
        ),
    ]
    return "\n".join(parts)


def standing(found: Finding) -> list[str]:
    """The gain with its interval, the verdict or what it waits for, and whether the models are trained."""
    there = f"{len(found.comparisons[0].seeds)} of {found.claim.seeds} seeds"
    gain = f"{_interval(found, found.comparisons[0])}, {there}"
    return [gain, found.verdict or f"not yet: {there}", _TRAINED[found.gate.trained]]


def papers_gain(found: Finding) -> str:
    """``108.26 → 106.38 (+1.74 %)``, or the gain alone where the paper gives no more."""
    gain, paper = _gain(found, found.effect), found.claim.paper
    return f"{paper[0]:g} → {paper[1]:g} ({gain})" if isinstance(paper, tuple) else gain


def _row(found: Finding, one: Comparison) -> list[str]:
    tests = one.against_effect
    both = None if tests is None else max(tests.p_below, tests.p_above)
    return [
        one.labels[0],
        one.labels[1],
        str(len(one.seeds)),
        _interval(found, one),
        _p(one.gain.p_value),
        "primary" if one.primary else _p(one.holm),
        _p(None if tests is None else tests.p_above),
        _p(both),
    ]


def _p(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _gain(found: Finding, value: float | None) -> str:
    """``1 - PPL(model) / PPL(other)`` in percent, or points."""
    if value is None or not math.isfinite(value):
        return MISSING
    return formatting.percent(1 - math.exp(-value)) if found.metric in LOWER_IS_BETTER else formatting.signed(value)


def _interval(found: Finding, one: Comparison) -> str:
    bounds = f" [{_gain(found, one.gain.low)}, {_gain(found, one.gain.high)}]" if one.gain.low is not None else ""
    return f"{_gain(found, one.gain.estimate)}{bounds}"


def _spread(found: Finding, one: Comparison) -> str:
    if one.spread is None:
        return MISSING
    return f"{100 * one.spread:.2f} %" if found.metric in LOWER_IS_BETTER else formatting.number(one.spread)
