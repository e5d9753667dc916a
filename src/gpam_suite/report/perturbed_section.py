"""Perturbed input on the page of results: a figure and a table for each experiment, from ``<results>/perturbed/``."""

from collections.abc import Iterable
from statistics import fmean

from matplotlib.figure import Figure

from gpam_suite.common import formatting
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import bullets, markdown
from gpam_suite.common.tasks import LM, NMT
from gpam_suite.report.model_looks import look_of, selected
from gpam_suite.report.plotting import Plot, band, legend_below, some_panels
from gpam_suite.report.provenance import caption
from gpam_suite.report.tables import difference_cell
from gpam_suite.stats.over_seeds import summarise
from gpam_suite.stats.perturbed import METRICS, Found
from gpam_suite.stats.rows import Aggregate

COMMAND = "python scripts/perturb.py"
_TITLES = {"characters": "Character noise", "dropped": "Dropped words", "swapped": "Swapped words"}
LABELS = {"bleu": "BLEU", "chrf": "chrF", "perplexity": "Perplexity"}
_TEXTS = {NMT.name: "sentences", LM.name: "blocks (the first half is perturbed, the second half is scored)"}
_WORSE = {NMT.name: "a fall", LM.name: "a rise"}


def title(kind: str, aggregate: Aggregate) -> str:
    """``Character noise``, ``Adversarial sub-words``."""
    return _TITLES.get(kind) or f"Adversarial {'characters' if aggregate.unit == 'character' else 'sub-words'}"


def plot(found: Found, name: str = "perturbed", made_by: str = COMMAND) -> Plot:
    """Scores by rate, a panel for each kind."""
    shown, percent = selected(found.aggregate, found.rows), [100 * rate for rate in (0, *found.rates)]
    lines = (len(found.kinds) + 1) // 2

    def paint(figure: Figure) -> None:
        grid = some_panels(figure, len(found.kinds), lines, 2)
        for axes, kind in zip(grid, found.kinds, strict=True):
            for row, own in shown:
                seeds = [[1.0, *values] for values in found.relative(own, kind).values()]
                if seeds:
                    band(axes, percent, seeds, look_of(found.aggregate, row), row.label)
            axes.set_title(title(kind, found.aggregate))
            axes.set_xticks(percent)
            axes.set_xlabel("Rate in percent")
            axes.set_ylabel(f"{LABELS[found.metric]} / clean")
            axes.ticklabel_format(axis="y", useOffset=False)
        legend_below(figure)

    what = (
        f"{LABELS[found.metric]} of perturbed input over that of the same input clean, for the same model, by the rate "
        f"of perturbed words or sub-words, on {found.first['texts']} {_TEXTS[found.aggregate.task]}; mean (line) and "
        "range (band) over seeds."
    )
    said = caption(found.aggregate, what, shown, then=made_by, among=len(found.rows))
    return Plot(name, said, 0.6 + 2.1 * lines, paint)


def table(found: Found) -> str:
    """Models by kinds, and how to read it."""
    baseline, rate = found.aggregate.baseline, f"{100 * found.rates[-1]:g}"
    label, others = LABELS[found.metric], METRICS[found.aggregate.task][1:]
    head = ["Model", "Perturbation", "Seeds", f"{label}, clean", f"{label} at {rate} %", "Change"]
    head += [f"Change of {LABELS[other]}" for other in others]
    head += [f"Change less that of {baseline.label if baseline else 'softmax'}, points [95 %]", "Holm"]
    lines = []
    for row, own in found.rows:
        for kind in found.kinds:
            clean, last = ([one["clean"] for one in own.values()], [one["kinds"][kind][-1] for one in own.values()])
            cells = [row.label, title(kind, found.aggregate), str(len(own)), _mean(found, clean), _mean(found, last)]
            cells += [percent(found.change(own, kind, metric)) for metric in (found.metric, *others)]
            holm = formatting.p_value(found.corrected.get((row.key, kind)))
            lines.append([*cells, difference_cell(found.differences.get((row.key, kind))), holm])
    return f"{markdown(head, lines)}\n{bullets(_how_to_read(found))}"


def _mean(found: Found, scores: Iterable[dict[str, float | None]]) -> str:
    summary = summarise([one[found.metric] for one in scores if one[found.metric] is not None])
    return formatting.plus_minus(summary.mean, summary.sd, found.aggregate.digits)


def percent(changes: dict[int, float]) -> str:
    """The mean of changes in percent, by seed."""
    return f"{formatting.signed(fmean(changes.values()))} %" if changes else MISSING


def _how_to_read(found: Found) -> list[str]:
    rate, settings = f"{100 * found.rates[-1]:g}", found.settings
    of_words = [kind for kind in found.kinds if kind in _TITLES]
    changed = {kind: formatting.number(100 * found.first["kinds"][kind][-1]["changed"], 0) for kind in of_words}
    shares = ", ".join(f"{title(kind, found.aggregate).lower()} {share} %" for kind, share in changed.items())
    differ = f"; words that differ at {rate} %: {shares}" if shares else ""
    lines = [
        f"Change: from the clean score to that at {rate} %, in percent of the clean one; "
        f"{_WORSE[found.aggregate.task]} is a loss.",
        f"Noise of seed {settings['seed']}, the same for every model{differ}.",
    ]
    if found.differences:
        methods = formatting.listed(one.method for one in found.differences.values())
        lines.append(f"Differences to {found.aggregate.baseline.label}: {methods}.")
    if found.other:
        lines.append(f"{formatting.plural(found.other, 'run')} with other settings left out: {COMMAND} again=true.")
    return lines
