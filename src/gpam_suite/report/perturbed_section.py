"""Perturbed input on the page of results: a figure and a table for each experiment, from ``<results>/perturbed/``."""

from collections.abc import Iterable
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
from gpam_suite.stats.aggregate import Aggregate
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
    kinds, shown = found.settings["kinds"], selected(found.aggregate, found.rows)
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
        f"of perturbed words (adversarial: {_tokens(found.aggregate)}), on {_texts(found)}; mean (line) and range "
        "(band) over seeds."
    )
    said = caption(found.aggregate, what, shown, then=COMMAND, among=len(found.rows))
    return Plot("perturbed", said, 0.6 + 2.1 * ((len(kinds) + 1) // 2), paint)


def _texts(found: Found) -> str:
    one = next(iter(found.rows[0][1].values()))
    return f"{one['texts']} {_TEXTS[found.aggregate.task]}"


def _table(found: Found, most: int | None = None) -> str:
    """Models by kinds, of ``most`` models."""
    baseline, rate = found.aggregate.baseline, formatting.number(100 * found.rates[-1], 0)
    label, others = LABELS[found.metric], METRICS[found.aggregate.task][1:]
    head = ["Model", "Perturbation", "Seeds", f"{label}, clean", f"{label} at {rate} %", "Change"]
    head += [f"Change of {LABELS[other]}" for other in others]
    head += [f"Change less that of {baseline.label if baseline else 'softmax'}, points [95 %]", "Holm"]
    table = []
    for row, own in selected(found.aggregate, found.rows, most or len(found.rows)):
        for kind in found.settings["kinds"]:
            clean = summarise(_known(one["clean"][found.metric] for one in own.values()))
            last = summarise(_known(one["kinds"][kind][-1][found.metric] for one in own.values()))
            against = found.differences.get((row.key, kind))
            scaled = against and [against.estimate, against.low, against.high]
            table.append(
                [
                    row.label,
                    title(kind, found.aggregate),
                    str(len(own)),
                    formatting.plus_minus(clean.mean, clean.sd, found.aggregate.digits),
                    formatting.plus_minus(last.mean, last.sd, found.aggregate.digits),
                    *(_percent(found.change(own, kind, metric)) for metric in (found.metric, *others)),
                    formatting.estimate(*(value and 100 * value for value in scaled)) if scaled else MISSING,
                    formatting.p_value(found.corrected.get((row.key, kind))),
                ]
            )
    return markdown(head, table)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _percent(changes: dict[int, float]) -> str:
    return formatting.percent(summarise(list(changes.values())).mean)


def _how_to_read(found: Found) -> list[str]:
    rate, settings = formatting.number(100 * found.rates[-1], 0), found.settings
    first = next(iter(found.rows[0][1].values()))
    shares = ", ".join(
        f"{title(kind, found.aggregate).lower()} {formatting.number(100 * first['kinds'][kind][-1]['changed'], 0)} %"
        for kind in settings["kinds"]
    )
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
