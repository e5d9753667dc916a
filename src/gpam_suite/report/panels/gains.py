"""The figure of the claims: what every seed gains, beside the smallest effect of interest."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpam_suite.common.formatting import signed
from gpam_suite.records.metrics import IN_PERCENT, METRIC_LABEL
from gpam_suite.report.plotting import BASELINE_DASH, COLOURS, Plot, legend_below
from gpam_suite.report.provenance import FROM_RECORDS
from gpam_suite.stats.claim import Claim, as_shown
from gpam_suite.stats.finding import Comparison, Finding

_PRIMARY, _SECONDARY = COLOURS[0], "#777777"
_FAR = 5
"""A mean so many times the claim's effect away is a number at the edge, so that the others can be told apart."""
_EFFECT = {"color": "#882255", "linewidth": 1.2, "zorder": 1}  # no model's colour
_PAPERS, _PLANS = (0, (6, 2, 1.2, 2)), (0, (2, 1.5))  # dashes


def claimed_gains(said: Mapping[str, Finding]) -> Plot | None:
    """A panel a claim, a line a model: what each seed gains over softmax, their mean, its interval; 0 and the claim's
    effect. A part of a plan has the plan's axis."""
    if not said:
        return None
    lines = [len(found.against_baseline) for found in said.values()]

    def paint(figure: Figure) -> None:
        grid = figure.subplots(len(said), 1, squeeze=False, height_ratios=[count + 2 for count in lines])[:, 0]
        panels = dict(zip(said, grid, strict=True))
        for experiment, found in said.items():
            if plan := panels.get(found.claim.part_of):
                panels[experiment].sharex(plan)
            _panel(panels[experiment], found)
        legend_below(figure)

    far = any(_is_far(found, one) for found in said.values() for one in found.against_baseline)
    beyond = "A mean far outside is a number at the edge. " if far else ""
    what = (
        "What each seed of a model gains over softmax (round marks), their mean (bar) and its 95 % interval (line). "
        "Black: the primary comparison; grey: secondary ones. Intervals are not corrected for how many they are; full "
        "marks: the difference is shown, of secondary ones after the correction. "
        f"{beyond}{FROM_RECORDS}"
    )
    return Plot("claimed-gains", what, 0.7 + sum(0.28 * count + 0.75 for count in lines), paint)


def _panel(axes: Axes, found: Finding) -> None:
    for index, one in enumerate(found.against_baseline):
        colour = _PRIMARY if one.primary else _SECONDARY
        seeds = [as_shown(found.metric, gain) for gain in one.gains.values()]
        mean = as_shown(found.metric, one.gain.estimate)
        if _is_far(found, one):
            left = mean < 0
            said = f"\u25c2 {signed(mean)}" if left else f"{signed(mean)} \u25b8"
            at = {"transform": axes.get_yaxis_transform(), "ha": "left" if left else "right", "va": "center"}
            axes.text(0.01 if left else 0.99, index, said, color=colour, fontsize=7, **at)
            continue
        face = colour if one.shown else "none"
        axes.plot(seeds, [index + 0.14] * len(seeds), "o", markerfacecolor=face, markeredgecolor=colour, markersize=4)
        axes.plot([mean], [index - 0.14], "|", color=colour, markersize=9, markeredgewidth=2)
        if one.gain.low is not None:
            ends = [as_shown(found.metric, end) for end in (one.gain.low, one.gain.high)]
            axes.plot(ends, [index - 0.14] * 2, color=colour, linewidth=1.3)
    axes.axvline(0, color="#000000", linestyle=BASELINE_DASH, linewidth=0.8, zorder=1, label="no gain")
    axes.axvline(as_shown(found.metric, found.effect), **effect_line(found.claim))
    names = [one.labels[0] for one in found.against_baseline]
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_title(found.claim.title, fontsize=8)
    lower = found.metric in IN_PERCENT
    axes.set_xlabel(f"{METRIC_LABEL[found.metric]}, {'percent lower' if lower else 'points higher'}", fontsize=8)


def _is_far(found: Finding, one: Comparison) -> bool:
    return abs(one.gain.estimate) > _FAR * found.effect


def effect_line(claim: Claim) -> dict[str, Any]:
    """How the smallest effect of interest looks, and what it is called: the paper's gain where it has the row."""
    label = "the paper's gain" if claim.paper else "the plan's smallest effect: not a row of the paper"
    return {**_EFFECT, "linestyle": _PAPERS if claim.paper else _PLANS, "label": label}
