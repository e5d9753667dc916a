"""Perturbed input on the page of results: a figure and a table for each experiment, from ``<results>/perturbed/``."""

from collections.abc import Iterable
from statistics import fmean
from urllib.parse import quote

from matplotlib.figure import Figure

from gpam_suite.common import formatting
from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import bullets, inert, markdown
from gpam_suite.common.tasks import LM, NMT
from gpam_suite.report.model_looks import APART, look_of, selected
from gpam_suite.report.plotting import Plot, band, legend_below
from gpam_suite.report.provenance import caption
from gpam_suite.stats.aggregate import Aggregate, Row
from gpam_suite.stats.over_seeds import CONFIDENCE, summarise
from gpam_suite.stats.perturbed import METRICS, Found

COMMAND = "python scripts/perturb.py"
_TITLES = {"characters": "Character noise", "dropped": "Dropped words", "swapped": "Swapped words"}
LABELS = {"bleu": "BLEU", "chrf": "chrF", "perplexity": "Perplexity"}
_TEXTS = {NMT.name: "sentences", LM.name: "blocks (the first half is perturbed, the second half is scored)"}
_WORSE = {NMT.name: "a fall", LM.name: "a rise"}


def title(kind: str, aggregate: Aggregate) -> str:
    """``Character noise``, ``Adversarial sub-words``."""
    return _TITLES.get(kind) or f"Adversarial {_tokens(aggregate)}"


def _tokens(aggregate: Aggregate) -> str:
    """What an adversary replaces."""
    return "characters" if aggregate.unit == "character" else "sub-words"


def whole_table(found: Found) -> str:
    """The page at :func:`table_path`: every model."""
    return f"# {inert(found.aggregate.experiment)}, perturbed\n\n{_table(found)}\n{bullets(_how_to_read(found))}"


def section(found: Found) -> list[str]:
    """Paragraphs for the page of results."""
    return [
        f"## Perturbed input: {inert(found.aggregate.experiment)}\n",
        _table(found, APART),
        f"[All models]({quote(table_path(found))}).\n",
        bullets(_how_to_read(found)),
    ]


def table_path(found: Found) -> str:
    """Where :func:`whole_table` stands below the results."""
    return f"tables/{safe_name(found.aggregate.experiment)}-perturbed.md"


def plot(found: Found) -> Plot:
    """Scores by rate, a panel for each kind."""
    kinds, shown = found.kinds, selected(found.aggregate, found.rows)
    percent = [100 * rate for rate in (0, *found.rates)]

    def paint(figure: Figure) -> None:
        grid = figure.subplots((len(kinds) + 1) // 2, 2, squeeze=False)
        for axes, kind in zip(grid.flat, kinds, strict=False):
            for row, own in shown:
                seeds = [[1.0, *values] for values in found.relative(own, kind).values()]
                if seeds:
                    band(axes, percent, seeds, look_of(found.aggregate, row), row.label)
            axes.axhline(1, color="#888888", linewidth=0.6)
            axes.set_title(title(kind, found.aggregate))
            axes.set_xticks(percent)
            axes.set_xlabel("Rate in percent")
            axes.set_ylabel(f"{LABELS[found.metric]} / clean")
            axes.ticklabel_format(axis="y", useOffset=False)
        for axes in list(grid.flat)[len(kinds) :]:
            axes.set_visible(False)
        legend_below(figure)

    what = (
        f"{LABELS[found.metric]} of perturbed input over that of the same input clean, for the same model, by the rate "
        f"of perturbed words (adversarial: {_tokens(found.aggregate)}), on {found.first['texts']} "
        f"{_TEXTS[found.aggregate.task]}; mean (line) and range (band) over seeds."
    )
    said = caption(found.aggregate, what, shown, then=COMMAND, among=len(found.rows))
    return Plot("perturbed", said, 0.6 + 2.1 * ((len(kinds) + 1) // 2), paint)


def _table(found: Found, most: int | None = None) -> str:
    """Models by kinds, of ``most`` models."""
    baseline, rate = found.aggregate.baseline, formatting.number(100 * found.rates[-1], 0)
    label, others = LABELS[found.metric], METRICS[found.aggregate.task][1:]
    head = ["Model", "Perturbation", "Seeds", f"{label}, clean", f"{label} at {rate} %", "Change"]
    head += [f"Change of {LABELS[other]}" for other in others]
    head += [f"Change less that of {baseline.label if baseline else 'softmax'}, points [95 %]", "Holm"]
    table = []
    for row, own in selected(found.aggregate, found.rows, most or len(found.rows)):
        for kind in found.kinds:
            clean, last = ([one["clean"] for one in own.values()], [one["kinds"][kind][-1] for one in own.values()])
            cells = [row.label, title(kind, found.aggregate), str(len(own)), _mean(found, clean), _mean(found, last)]
            cells += [percent(found.change(own, kind, metric)) for metric in (found.metric, *others)]
            holm = formatting.p_value(found.corrected.get((row.key, kind)))
            table.append([*cells, points(found, row, kind), holm])
    return markdown(head, table)


def _mean(found: Found, scores: Iterable[dict[str, float | None]]) -> str:
    summary = summarise([one[found.metric] for one in scores if one[found.metric] is not None])
    return formatting.plus_minus(summary.mean, summary.sd, found.aggregate.digits)


def percent(changes: dict[int, float]) -> str:
    """The mean of changes in percent, by seed."""
    return f"{formatting.signed(fmean(changes.values()))} %" if changes else MISSING


def points(found: Found, row: Row, kind: str) -> str:
    """The change of ``row`` less that of the baseline, in percent of the clean score, with its interval."""
    against = found.differences.get((row.key, kind))
    return formatting.estimate(against.estimate, against.low, against.high) if against else MISSING


def _how_to_read(found: Found) -> list[str]:
    rate, settings = formatting.number(100 * found.rates[-1], 0), found.settings
    changed = {kind: formatting.number(100 * found.first["kinds"][kind][-1]["changed"], 0) for kind in found.kinds}
    shares = ", ".join(f"{title(kind, found.aggregate).lower()} {share} %" for kind, share in changed.items())
    lines = [
        f"Change: from the clean score to that at {rate} %, in percent of the clean one; "
        f"{_WORSE[found.aggregate.task]} is a loss.",
        f"Noise of seed {settings['seed']}, the same for every model; words that differ at {rate} %: {shares}.",
    ]
    tested = [against for against in found.differences.values() if against.holds_zero is not None]
    if tested:
        clear = sum(not against.holds_zero for against in tested)
        left = sum(p_value < 1 - CONFIDENCE for p_value in found.corrected.values())
        lines.append(
            f"Differences to {found.aggregate.baseline.label} ({formatting.listed(one.method for one in tested)}): "
            f"of {formatting.plural(len(tested), 'interval')} {clear} exclude zero, {left} after Holm's correction."
        )
    elif found.differences:
        lines.append("One seed: no interval, so no difference can be told from chance.")
    if found.other:
        lines.append(f"{formatting.plural(found.other, 'run')} with other settings left out: {COMMAND} again=true.")
    return lines
