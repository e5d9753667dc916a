"""What the statistics of an experiment do and do not show, in sentences. Nothing is said that they do not hold."""

from gpam_suite import formatting
from gpam_suite.aggregate import Aggregate, Row
from gpam_suite.formatting import plural
from gpam_suite.metrics import turned
from gpam_suite.provenance import few_seeds
from gpam_suite.statistics import CONFIDENCE

_FEW = 3


def reading(aggregate: Aggregate) -> list[str]:
    """One sentence or two for each row against the baseline, then the warnings that hold for all of them.

    Where some rows have an interval over seeds, or there are many, those of one seed are told by their warning alone.
    """
    if aggregate.baseline is None:
        return ["Softmax was not run in this experiment: there is nothing to compare with."]
    rivals = [row for row in aggregate.rows if row is not aggregate.baseline]
    if not rivals:
        return [f"Only {aggregate.baseline.label} was run: there is nothing to compare."]
    differences = [(row, aggregate.difference(row)) for row in rivals]
    intervals = [found for _, found in differences if found and found.holds_zero is not None]
    few = not intervals and len(rivals) <= _FEW
    told = [row for row, found in differences if few or not found or found.holds_zero is not None or row.lost]
    sentences = [_compare(aggregate, row) for row in told]
    if len(intervals) > 1:
        sentences.append(
            f"These {len(intervals)} intervals over seeds are not corrected for their number. {_after_holm(aggregate)}"
        )
    sentences += [f"**Warning.** {warning}" for warning in few_seeds(aggregate)]
    return sentences


def _compare(aggregate: Aggregate, row: Row) -> str:
    baseline = aggregate.baseline
    assert baseline is not None
    lost = (
        f" {plural(len(row.lost), 'seed')} of {len(row.records)} failed or diverged, not in these numbers."
        if row.lost
        else ""
    )
    found = aggregate.difference(row)
    if found is None:
        without = row if not row.finished else baseline
        return f"**{row.label}**: no comparison, no seed of {without.label} finished.{lost}"
    digits = formatting.enough(found.low, found.high, aggregate.digits)
    change = f"{formatting.signed(found.estimate, digits)} {aggregate.quantity}"
    start = f"**{row.label}**: difference to {baseline.label} {change}"
    if found.holds_zero is None:
        return f"{start}, {found.method}; {_on_test_set(aggregate, row)}{lost}"
    interval = f"95 % interval over seeds {formatting.interval(found.low, found.high, digits)} ({found.method})"
    if found.holds_zero:
        verdict = "holds zero: no difference shown at this scale"
    else:
        better = turned(aggregate.metric, found.estimate) > 0
        verdict = f"excludes zero: {'better' if better else 'worse'} than {baseline.label} in this setting"
        if (row if better else baseline).lost:
            verdict = "excludes zero, but the better side lost a seed: no difference shown"
    return f"{start}, {interval} {verdict}; {_on_test_set(aggregate, row)}{lost}"


def _after_holm(aggregate: Aggregate) -> str:
    corrected = aggregate.corrected(aggregate.difference)
    left = [
        f"{row.label} ({'better' if turned(aggregate.metric, aggregate.difference(row).estimate) > 0 else 'worse'})"
        for row in aggregate.compared
        if corrected.get(row.key, 1.0) < 1 - CONFIDENCE
    ]
    return (
        f"After Holm's correction {' and '.join(left) if left else 'none of them'} "
        f"{'differ' if len(left) > 1 else 'differs'} from {aggregate.baseline.label} over seeds at the 5 % level."
    )


def _on_test_set(aggregate: Aggregate, row: Row) -> str:
    found = aggregate.test_set(row)
    if found is None:
        return "no test over the test set, as scores are missing."
    holds = "holds zero" if found.low <= 0 <= found.high else "excludes zero"
    if (found.p_value < 1 - CONFIDENCE) != (holds == "excludes zero"):
        holds += ", but barely: the p value says otherwise"
    return (
        f"over the {aggregate.units} of the test set the interval is "
        f"{formatting.interval(found.low, found.high, aggregate.digits)} "
        f"({formatting.p_value(found.p_value)}) and {holds}, for these trained models."
    )
