"""Tables of the experiments whose models had hardly begun to learn (`results/early-training.md`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from gpam_suite.common import formatting
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import markdown
from gpam_suite.records.folder import Record, read_history
from gpam_suite.report.perturbed_section import percent, points, title
from gpam_suite.report.tables import difference_cell, metric_title
from gpam_suite.stats import perturbed
from gpam_suite.stats.aggregate import BASELINE, FIXED, TRAINABLE, Aggregate, Row
from gpam_suite.stats.claim import reference_score
from gpam_suite.stats.comparisons import by_seed, mean_of
from gpam_suite.stats.curves import learning_curve
from gpam_suite.stats.over_seeds import difference

CURVES = (
    "lm_wikitext2_deep",
    "lm_wikitext2_short",
    "lm_laptop",
    "nmt_multi30k_de_en",
    "nmt_tatoeba",
    "nmt_iwslt14_sample",
)
"""The experiments whose curves the page shows."""
ORDER = 5
HALF, HALF_SUM = "softmax_half", "dagpam_half_sum"
Cells = Iterable[list[str]]


def tables(
    titles: Mapping[str, str], aggregates: Sequence[Aggregate], results: Path, analyses: Mapping[Path, Any]
) -> dict[str, str]:
    """Name to text of the page's tables of the published ``results``; ``analyses`` maps a run's folder to its own."""

    def table(head: Sequence[str], cells: Callable[[Aggregate], Cells]) -> str:
        lines = [[titles[found.experiment], *own] for found in aggregates for own in cells(found)]
        return markdown(["Experiment", *head], lines)

    compared = ["softmax", "daGPAM", "daGPAM less softmax [95 %]"]
    return {
        "early-facts": _facts(aggregates),
        "early-references": table(
            ["Metric", f"Kneser-Ney, {ORDER}-gram", "softmax", "Best model of the experiment"],
            lambda found: _references(found, results),
        ),
        "early-scores": table(
            [
                *("Metric", "Updates", "Ended in epoch", "softmax", "daGPAM less softmax [95 %]", "Holm"),
                *("Trainable lambdas less softmax [95 %]", "Holm "),
            ],
            _scores,
        ),
        "early-sums": table(
            ["Metric", "softmax", "Softmax times 0.5 less softmax [95 %]", "daGPAM of sum 0.5 less softmax [95 %]"],
            _sums,
        ),
        "early-moving": table(
            [
                *("Quantity on the validation set", "Between updates", "softmax fell by", "In percent"),
                *("daGPAM less softmax at the end", "The fall over the difference"),
            ],
            _moving,
        ),
        "early-lambdas": table(["lambda+", "lambda-", "Sum of a row, 1 + lambda+ - lambda-"], _lambdas),
        "early-gradients": table(compared, _gradients),
        "early-collapse": table(["Stack", *compared], lambda found: _collapse(found, analyses)),
        "early-noise": table(
            ["Perturbation", "Rate", "Score", "softmax changes by", "daGPAM less softmax, points [95 %]"],
            lambda found: _noise(found, results),
        ),
    }


def _has(found: Aggregate, *models: str) -> bool:
    return all(found.row_of(model) for model in models)


def _is_main(found: Aggregate) -> bool:
    """Whether softmax and daGPAM by their own options are compared, and not scaled weights."""
    return _has(found, BASELINE, FIXED) and not _has(found, HALF)


def _metric(found: Aggregate) -> str:
    return metric_title(found).removeprefix("Test ")


def _score(found: Aggregate, row: Row) -> str:
    summary = row.summary(found.metric)
    return formatting.plus_minus(summary.mean, summary.sd, found.digits)


def _difference(found: Aggregate, model: str) -> list[str]:
    """With its interval, and with Holm's p value."""
    if (row := found.row_of(model)) is None:
        return [MISSING, MISSING]
    corrected = found.corrected(found.difference).get(row.key)
    return [difference_cell(found, found.difference(row)), formatting.p_value(corrected)]


def _scores(found: Aggregate) -> Cells:
    """softmax, daGPAM and daGPAM with trainable lambdas."""
    if _is_main(found):
        softmax = found.row_of(BASELINE)
        epochs = [row["epoch"] for row in read_history(softmax.finished[0].folder) if row.get("split") == "valid"]
        own = [_metric(found), formatting.count(found.reference["updates"]), str(epochs[-1]), _score(found, softmax)]
        yield [*own, *_difference(found, FIXED), *_difference(found, TRAINABLE)]


def _sums(found: Aggregate) -> Cells:
    """Rows of weights that sum to a half, without and with negative weights."""
    if _has(found, BASELINE, HALF, HALF_SUM):
        own = [_metric(found), _score(found, found.row_of(BASELINE))]
        yield [*own, *(_difference(found, model)[0] for model in (HALF, HALF_SUM))]


def _moving(found: Aggregate) -> Cells:
    """How far softmax itself moved between its last two validations, beside the difference to daGPAM at the end."""
    if _is_main(found):
        ours, theirs = (learning_curve(found.row_of(model)) for model in (BASELINE, FIXED))
        before, last = ours.values.mean(axis=0)[-2:].tolist()
        fall, ahead = before - last, float(theirs.values.mean(axis=0)[-1]) - last
        times = abs(fall / ahead) if ahead else None
        yield [
            "perplexity per token",
            " and ".join(f"{update:,}" for update in ours.updates[-2:].tolist()),
            formatting.number(fall),
            formatting.number(100 * fall / before, 1),
            formatting.signed(ahead),
            formatting.number(times, 0 if times and times > 10 else 1),
        ]


def _lambdas(found: Aggregate) -> Cells:
    """Where learned lambdas went, as means over modules: the least and the largest of the seeds."""
    if row := found.row_of(TRAINABLE):
        ends = [
            [mean_of(record["learned_scalars"], name) for record in row.finished]
            for name in ("lambda_pos", "lambda_neg")
        ]
        total = [1 + pos - neg for pos, neg in zip(*ends, strict=True)]
        yield [f"{formatting.number(min(own))} to {formatting.number(max(own))}" for own in (*ends, total)]


def _gradients(found: Aggregate) -> Cells:
    """Norms of the loss' gradient in the query projections: median over training, mean over modules."""
    if _is_main(found):
        yield from _compared(found, lambda record: mean_of(record.data.get("gradient_norms"), "query"), 4)


def _collapse(found: Aggregate, analyses: Mapping[Path, Any]) -> Cells:
    """Relative residual behind the last layer of each stack."""
    if _is_main(found):
        own = {record: analyses[record.folder]["streams"] for record in found.records if record.folder in analyses}
        for stack in next(iter(own.values()), ()):
            for cells in _compared(
                found, lambda record, stack=stack: own[record][stack]["residual"][-1] if record in own else None, 3
            ):
                yield [stack, *cells]


def _compared(found: Aggregate, read: Callable[[Record], float | None], digits: int) -> Cells:
    """What ``read`` finds in the runs of softmax and of daGPAM: both means, and the difference with its interval."""
    base, own = (by_seed(found.row_of(model), read) for model in (BASELINE, FIXED))
    tested = difference(own, base) if own and base else None
    if tested and tested.low is not None:
        means = [formatting.number(fmean(side.values()), digits) for side in (base, own)]
        yield [*means, formatting.estimate(tested.estimate, tested.low, tested.high, digits)]


def _noise(found: Aggregate, results: Path) -> Cells:
    """What perturbed input costs softmax and daGPAM, in percent of the score of clean input."""
    read, fixed = perturbed.find(results, found), found.row_of(FIXED)
    own = dict(read.rows) if read else {}
    if fixed in own and found.baseline in own:
        for kind in read.kinds:
            yield [
                title(kind, found),
                f"{formatting.number(100 * read.rates[-1], 0)} %",
                read.metric,
                percent(read.change(own[found.baseline], kind)),
                points(read, fixed, kind),
            ]


def _references(found: Aggregate, results: Path) -> Cells:
    """Language models beside what counting alone reaches on the same test set."""
    counted = reference_score(results, found, ORDER)
    if counted is not None and _has(found, BASELINE, FIXED):
        best = max((row for row in found.rows if row.finished), key=found.goodness)
        own = [_metric(found), formatting.number(counted, found.digits), _score(found, found.row_of(BASELINE))]
        yield [*own, f"{best.label}: {_score(found, best)}"]


def _facts(aggregates: Sequence[Aggregate]) -> str:
    """How much was run, and how large."""
    records = [record for found in aggregates for record in found.records]
    finished = [record for record in records if record["status"] == "finished"]
    if not finished:
        return "No run is published yet.\n"
    updates = [record["updates"] for record in finished]
    sizes = [record["parameters"]["total"] / 1e6 for record in finished]
    lines = [
        ["Experiments", str(len(aggregates))],
        ["Runs", str(len(records))],
        ["Runs that finished", str(len(finished))],
        ["Updates, fewest and most", f"{min(updates):,} to {max(updates):,}"],
        ["Parameters in millions, fewest and most", f"{min(sizes):.1f} to {max(sizes):.1f}"],
    ]
    return markdown(["What", "How many"], lines)
