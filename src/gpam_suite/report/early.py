"""Tables of the experiments whose models had hardly begun to learn (`results/early-training.md`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from gpam_suite.common import formatting
from gpam_suite.common.formatting import MISSING
from gpam_suite.common.markup import markdown
from gpam_suite.records.lines import read_history
from gpam_suite.report.tables import difference_cell, metric_title
from gpam_suite.stats.aggregate import FIXED, TRAINABLE
from gpam_suite.stats.curves import learning_curve, title
from gpam_suite.stats.finding import reference_score
from gpam_suite.stats.rows import BASELINE, Aggregate, Row

ORDER = 5
Cells = Iterable[list[str]]


def tables(titles: Mapping[str, str], aggregates: Sequence[Aggregate], results: Path) -> dict[str, str]:
    """Name to text of the page's tables of the published ``results``."""

    def table(head: Sequence[str], cells: Callable[[Aggregate], Cells]) -> str:
        lines = [[titles[found.experiment], *own] for found in aggregates for own in cells(found)]
        return markdown(["Experiment", *head], lines)

    return {
        "early-references": table(
            ["Metric", f"Kneser-Ney, {ORDER}-gram", "softmax", "Best model of the experiment"],
            lambda found: _references(found, results),
        ),
        "early-scores": table(
            [
                *("Metric", "Updates", "Ended in epoch", "softmax", "daGPAM less softmax [95 %]", "Holm"),
                *("Trainable lambdas less softmax [95 %]", "Holm"),
            ],
            _scores,
        ),
        "early-moving": table(
            [
                *("Quantity on the validation set", "Between updates", "softmax fell by", "In percent"),
                *("daGPAM less softmax at the end", "The fall over the difference"),
            ],
            _moving,
        ),
    }


def _is_main(found: Aggregate) -> bool:
    """Whether softmax and daGPAM by their own options are compared."""
    return bool(found.row_of(BASELINE) and found.row_of(FIXED))


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
    return [difference_cell(found.difference(row), found.digits), formatting.p_value(corrected)]


def _scores(found: Aggregate) -> Cells:
    """softmax, daGPAM and daGPAM with trainable lambdas."""
    if _is_main(found):
        softmax = found.row_of(BASELINE)
        epochs = [row["epoch"] for row in read_history(softmax.finished[0].folder, "valid")]
        own = [_metric(found), formatting.count(found.reference["updates"]), str(epochs[-1]), _score(found, softmax)]
        yield [*own, *_difference(found, FIXED), *_difference(found, TRAINABLE)]


def _moving(found: Aggregate) -> Cells:
    """How far softmax itself moved between its last two validations, beside the difference to daGPAM at the end."""
    if _is_main(found):
        ours, theirs = (learning_curve(found.row_of(model)) for model in (BASELINE, FIXED))
        before, last = ours.values.mean(axis=0)[-2:].tolist()
        fall, ahead = before - last, float(theirs.values.mean(axis=0)[-1]) - last
        times = abs(fall / ahead) if ahead else None
        yield [
            title(found.task).removeprefix("Validation "),
            " and ".join(f"{update:,}" for update in ours.updates[-2:].tolist()),
            formatting.number(fall),
            formatting.number(100 * fall / before, 1),
            formatting.signed(ahead),
            formatting.number(times, 0 if times and times > 10 else 1),
        ]


def _references(found: Aggregate, results: Path) -> Cells:
    """Language models beside what counting alone reaches on the same test set."""
    counted = reference_score(results, found, ORDER)
    if counted is not None and _is_main(found):
        best = max((row for row in found.rows if row.finished), key=found.goodness)
        own = [_metric(found), formatting.number(counted, found.digits), _score(found, found.row_of(BASELINE))]
        yield [*own, f"{best.label}: {_score(found, best)}"]
