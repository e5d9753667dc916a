"""Tables of the experiments whose models had hardly begun to learn (`results/early-training.md`)."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from gpam_suite.common import formatting
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import markdown
from gpam_suite.evaluate.kneser_ney import reference_file
from gpam_suite.records.folder import read_history
from gpam_suite.report.perturbed_section import title as kind_title
from gpam_suite.report.tables import difference_cell, metric_title
from gpam_suite.stats import inside_models, perturbed
from gpam_suite.stats.aggregate import BASELINE, DEFAULT_OPTIONS, FIXED, TRAINABLE, Aggregate, Row
from gpam_suite.stats.curves import QUANTITIES, validation
from gpam_suite.stats.over_seeds import ENOUGH_SEEDS

ORDER = 5
HALF, HALF_SUM = "softmax_half", "dagpam_half_sum"


def row_of(found: Aggregate, model: str) -> Row | None:
    """The model's row with its own options, where enough of its seeds finished."""
    rows = (row for row in found.rows if row.model == model and row.overrides_label == DEFAULT_OPTIONS)
    return next((row for row in rows if len(row.finished) >= ENOUGH_SEEDS), None)


def _has(found: Aggregate, *models: str) -> bool:
    return all(row_of(found, model) for model in models)


def _score(found: Aggregate, row: Row) -> str:
    summary = row.summary(found.metric)
    return formatting.plus_minus(summary.mean, summary.sd, found.digits)


def _difference(found: Aggregate, model: str) -> str:
    row = row_of(found, model)
    return difference_cell(found, found.difference(row)) if row else MISSING


def _holm(found: Aggregate, model: str) -> str:
    row = row_of(found, model)
    return formatting.p_value(found.corrected(found.difference).get(row.key)) if row else MISSING


def scores(titles: Mapping[str, str], aggregates: Sequence[Aggregate]) -> str:
    """softmax, daGPAM and daGPAM with trainable lambdas in every experiment that has the first two by their options."""
    head = ["Experiment", "Metric", "Updates", "Ended in epoch", "softmax", "daGPAM less softmax [95 %]", "Holm"]
    head += ["Trainable lambdas less softmax [95 %]", "Holm "]
    lines = []
    for found in aggregates:
        if _has(found, BASELINE, FIXED) and not _has(found, HALF):
            softmax = row_of(found, BASELINE)
            epochs = [row["epoch"] for row in read_history(softmax.finished[0].folder) if row.get("split") == "valid"]
            own = [titles[found.experiment], metric_title(found).removeprefix("Test ")]
            own += [formatting.count(found.reference["updates"]), str(epochs[-1]), _score(found, softmax)]
            own += [cell for model in (FIXED, TRAINABLE) for cell in (_difference(found, model), _holm(found, model))]
            lines.append(own)
    return markdown(head, lines)


def sums(titles: Mapping[str, str], aggregates: Sequence[Aggregate]) -> str:
    """Rows of weights that sum to a half, without and with negative weights."""
    head = ["Experiment", "Metric", "softmax", "Softmax times 0.5 less softmax [95 %]"]
    head += ["daGPAM of sum 0.5 less softmax [95 %]"]
    lines = []
    for found in aggregates:
        if _has(found, BASELINE, HALF, HALF_SUM):
            own = [
                titles[found.experiment],
                metric_title(found).removeprefix("Test "),
                _score(found, row_of(found, BASELINE)),
            ]
            lines.append([*own, _difference(found, HALF), _difference(found, HALF_SUM)])
    return markdown(head, lines)


def moving(titles: Mapping[str, str], aggregates: Sequence[Aggregate]) -> str:
    """How far softmax itself moved between its last two validations, beside the difference to daGPAM at the end."""
    head = ["Experiment", "Quantity on the validation set", "Between updates", "softmax fell by", "In percent"]
    head += ["daGPAM less softmax at the end", "The fall over the difference"]
    lines = []
    for found in aggregates:
        if not _has(found, BASELINE, FIXED) or _has(found, HALF):
            continue
        sides = [
            [validation(record, _quantity(row)) for record in row.finished]
            for row in (row_of(found, BASELINE), row_of(found, FIXED))
        ]
        before, last = sorted(sides[0][0])[-2:]
        start, end, other = (
            fmean(seed[update] for seed in side)
            for side, update in ((sides[0], before), (sides[0], last), (sides[1], last))
        )
        fall, difference = start - end, other - end
        times = abs(fall / difference) if difference else None
        own = [titles[found.experiment], "perplexity per token", f"{before:,} and {last:,}"]
        own += [formatting.number(fall), formatting.number(100 * fall / start, 1), formatting.signed(difference)]
        lines.append([*own, formatting.number(times, 0 if times and times > 10 else 1)])
    return markdown(head, lines)


def _quantity(row: Row) -> str:
    return next(name for name in QUANTITIES if validation(row.finished[0], name))


def lambdas(titles: Mapping[str, str], aggregates: Sequence[Aggregate]) -> str:
    """Where learned lambdas went, as means over modules: the least and the largest of the seeds."""
    head = ["Experiment", "lambda+", "lambda-", "Sum of a row, 1 + lambda+ - lambda-"]
    lines = []
    for found in aggregates:
        if row := row_of(found, TRAINABLE):
            ends = [
                [inside_models.mean_of(record["learned_scalars"], name) for record in row.finished]
                for name in ("lambda_pos", "lambda_neg")
            ]
            total = [1 + pos - neg for pos, neg in zip(*ends, strict=True)]
            lines.append([titles[found.experiment], *(_range(values) for values in (*ends, total))])
    return markdown(head, lines)


def _range(values: Sequence[float]) -> str:
    return f"{formatting.number(min(values))} to {formatting.number(max(values))}"


def gradients(titles: Mapping[str, str], aggregates: Sequence[Aggregate]) -> str:
    """Norms of the query's gradients, softmax against daGPAM."""
    head = ["Experiment", "softmax", "daGPAM", "daGPAM less softmax [95 %]"]
    known = [one for one in inside_models.gradients(_fixed(aggregates)) if one.difference.low is not None]
    return markdown(head, [[titles[one.aggregate.experiment], *_compared(one, 4)] for one in known])


def collapse(titles: Mapping[str, str], aggregates: Sequence[Aggregate], analyses: Mapping[Path, Any]) -> str:
    """Relative residual behind the last layer, softmax against daGPAM."""
    head = ["Experiment", "Stack", "softmax", "daGPAM", "daGPAM less softmax [95 %]"]
    known = [one for one in inside_models.collapse(_fixed(aggregates), analyses) if one.difference.low is not None]
    return markdown(head, [[titles[one.aggregate.experiment], one.stack, *_compared(one, 3)] for one in known])


def _fixed(aggregates: Sequence[Aggregate]) -> list[tuple[Aggregate, Row]]:
    return [(found, row) for found in aggregates if (row := row_of(found, FIXED)) and not _has(found, HALF)]


def _compared(one: inside_models.Comparison, digits: int) -> list[str]:
    """Both means, and the difference with its interval."""
    found = one.difference
    estimate = formatting.estimate(found.estimate, found.low, found.high, digits)
    return [*(formatting.number(value, digits) for value in one.means), estimate]


def noise(titles: Mapping[str, str], aggregates: Sequence[Aggregate], results: Path) -> str:
    """What perturbed input costs softmax and daGPAM, in percent of the score of clean input."""
    head = ["Experiment", "Perturbation", "Rate", "Score", "softmax changes by", "daGPAM less softmax, points [95 %]"]
    lines = []
    for found in filter(None, (perturbed.find(results, one) for one in aggregates)):
        fixed, baseline = row_of(found.aggregate, FIXED), found.aggregate.baseline
        own = {id(row): by_seed for row, by_seed in found.rows}
        if fixed is None or id(fixed) not in own or id(baseline) not in own:
            continue
        for kind in found.settings["kinds"]:
            against = found.differences.get((fixed.key, kind))
            scaled = (
                [value and 100 * value for value in (against.estimate, against.low, against.high)] if against else None
            )
            changes = found.change(own[id(baseline)], kind)
            lines.append(
                [
                    titles[found.aggregate.experiment],
                    kind_title(kind, found.aggregate),
                    f"{formatting.number(100 * found.rates[-1], 0)} %",
                    found.metric,
                    formatting.percent(fmean(changes.values())) if changes else MISSING,
                    formatting.estimate(*scaled) if scaled else MISSING,
                ]
            )
    return markdown(head, lines)


def references(titles: Mapping[str, str], aggregates: Sequence[Aggregate], results: Path) -> str:
    """Language models beside what counting alone reaches on the same test set."""
    head = ["Experiment", "Metric", f"Kneser-Ney, {ORDER}-gram", "softmax", "Best model of the experiment"]
    lines = []
    for found in aggregates:
        data = found.reference["data"]
        path = reference_file(results, data["name"], data["checksum"], ORDER)
        if path.is_file() and _has(found, BASELINE, FIXED):
            best = min((row for row in found.rows if row.finished), key=lambda row: row.summary(found.metric).mean)
            counted = json.loads(path.read_text(encoding="utf-8"))[found.metric]
            own = [titles[found.experiment], metric_title(found).removeprefix("Test ")]
            own += [formatting.number(counted, found.digits), _score(found, row_of(found, BASELINE))]
            lines.append([*own, f"{best.label}: {_score(found, best)}"])
    return markdown(head, lines)


def facts(aggregates: Sequence[Aggregate]) -> str:
    """How much was run, and how large."""
    records = [record for found in aggregates for record in found.records]
    finished = [record for record in records if record["status"] == "finished"]
    if not finished:
        return "No run is published yet.\n"
    sizes, updates = (
        [read(record) for record in finished] for read in (lambda r: r["parameters"]["total"], lambda r: r["updates"])
    )
    lines = [
        ["Experiments", str(len(aggregates))],
        ["Runs", str(len(records))],
        ["Runs that finished", str(len(finished))],
        ["Updates, fewest and most", f"{min(updates):,} to {max(updates):,}"],
        ["Parameters in millions, fewest and most", f"{min(sizes) / 1e6:.1f} to {max(sizes) / 1e6:.1f}"],
    ]
    return markdown(["What", "How many"], lines)
