"""Questions 7 to 9 and 13: collapse, gradients, collapse against quality, perturbed input."""

from collections.abc import Iterable, Sequence

from gpam_suite import formatting
from gpam_suite.aggregate import BASELINE, FIXED, Aggregate, Row
from gpam_suite.analysis import comparisons, draw_scatter, store
from gpam_suite.analysis.comparisons import Comparison
from gpam_suite.answers.answer import MISSING, UNDECIDED, Answer, Finding, all_of, at_least, told
from gpam_suite.answers.plan import LAMBDAS, LENGTHS, LOOKED_AT, PERTURBED, main_models, planned_runs
from gpam_suite.answers.runs import (
    NONE_FINISHED,
    Runs,
    ended,
    lacking,
    lost_seeds,
    missing,
    turned_interval,
    unless_lost,
    verdict_of,
)
from gpam_suite.metrics import turned
from gpam_suite.perturbation.found import find
from gpam_suite.perturbation.kinds import KINDS
from gpam_suite.perturbation.page import title
from gpam_suite.records import Record


def apart(runs: Runs) -> list[Answer]:
    """7: what is left of the tokens' differences behind the last layer; 8: the query's gradients."""
    pairs = _pairs(runs, LOOKED_AT)
    analyses = store.read_runs(runs.results, [record for found, _ in pairs for record in _seeds(runs, found)])
    looked_at = [pair for pair in pairs if all(record.folder in analyses for record in _seeds(runs, pair[0]))]
    logged = [
        (found, row)
        for found, row in _pairs(runs, (*LOOKED_AT, *LENGTHS[1]))
        if all(record.data.get("gradient_norms") for record in _seeds(runs, found))
    ]
    collapse = comparisons.collapse(looked_at, analyses)
    residuals = [one for one in collapse if one.name == "residual"]
    cosines = {(one.aggregate.experiment, one.stack): one for one in collapse if one.name == "cosine"}
    queries = [one for one in comparisons.gradients(logged) if one.name == "query"]
    return [
        _all_larger(7, runs, LOOKED_AT, looked_at, residuals, "relative residual", 3, cosines),
        _all_larger(8, runs, (*LOOKED_AT, *LENGTHS[1]), logged, queries, "gradient norm", 4, {}),
    ]


def _pairs(runs: Runs, names: Iterable[str]) -> comparisons.Pairs:
    """Each complete experiment of ``names`` with its row of daGPAM."""
    return [(runs.experiment(name), runs.row(name, FIXED)) for name in names if runs.complete(name, FIXED, BASELINE)]


def _planned_rows(runs: Runs, aggregate: Aggregate) -> list[Row]:
    """Of the models that the plan wants three seeds of; the experiment is complete."""
    return [runs.row(aggregate.experiment, model) for model in main_models(aggregate.experiment)]


def _seeds(runs: Runs, aggregate: Aggregate) -> list[Record]:
    return [record for row in _planned_rows(runs, aggregate) for record in row.finished]


def _all_larger(
    number: int,
    runs: Runs,
    names: Sequence[str],
    pairs: comparisons.Pairs,
    compared: list[Comparison],
    what: str,
    digits: int,
    cosines: dict[tuple[str, str], Comparison],
) -> Answer:
    findings = [_larger(one, what, digits, cosines.get((one.aggregate.experiment, one.stack))) for one in compared]
    numbers = {found.experiment for found in findings}
    findings += [
        Finding(found.experiment, UNDECIDED, f"{NONE_FINISHED}{lost_seeds(row, found.baseline)}")
        for found, row in pairs
        if found.experiment not in numbers
    ]
    findings += lacking(runs, names, findings)
    return Answer(number, all_of([found.verdict for found in findings]), told(findings))


def _larger(one: Comparison, what: str, digits: int, cosine: Comparison | None) -> Finding:
    """The verdict is of ``one``; what the cosine similarity says beside it is only told."""
    sides = one.row, one.aggregate.baseline
    stack = f"{one.stack}, " if one.stack else ""
    beside = f", mean cosine similarity {_against(cosine, digits)}" if cosine else ""
    phrase = f"{stack}{what} {_against(one, digits)}{beside}{lost_seeds(*sides)}"
    verdict = unless_lost(verdict_of(one.difference.low, one.difference.high), *sides)
    return Finding(one.aggregate.experiment, verdict, phrase)


def _against(one: Comparison, digits: int) -> str:
    base, own, change = one.cells(digits)
    return f"{own} against {base} ({change})"


def correlated(runs: Runs) -> list[Answer]:
    """9: the rank correlation over runs of the relative residual behind the last layer of each stack with the score, so
    turned that it is above zero where more residual goes with a better score."""
    names = (*LOOKED_AT, *LAMBDAS)
    findings = [found for name in names for found in _correlations(runs, name)]
    findings += lacking(runs, names, findings)
    return [Answer(9, all_of([found.verdict for found in findings]), told(findings))]


def _correlations(runs: Runs, experiment: str) -> list[Finding]:
    """A finding for each stack; none before every run of the plan is there and was looked at."""
    aggregate = runs.experiment(experiment)
    rows = aggregate.rows if aggregate else ()
    finished = [record for row in rows for record in row.finished]
    analyses = store.read_runs(runs.results, finished)
    if sum(len(ended(row)) for row in rows) < planned_runs(experiment) or len(analyses) < len(finished):
        return []
    findings = []
    for stack, points in draw_scatter.points(analyses, aggregate).items():
        found = draw_scatter.correlations(points)["residual"]
        if found is None:
            findings.append(Finding(experiment, UNDECIDED, f"{stack} too few runs, or no spread among them"))
            continue
        low, high = turned_interval(aggregate.metric, found.low, found.high)
        rho = formatting.estimate(turned(aggregate.metric, found.rho), low, high)
        findings.append(Finding(experiment, verdict_of(low, high), f"{stack} {rho} over {found.count} runs"))
    return findings or [Finding(experiment, UNDECIDED, "no run finished")]


# ------------------------------------------------------------------------------------------------------ perturbed input


def perturbed(runs: Runs) -> list[Answer]:
    """13: a smaller relative loss than softmax's at the largest rate, in most kinds of perturbation."""
    findings = [_less_hurt(runs, name) for name in PERTURBED]
    findings = [found for kinds in findings for found in kinds]
    verdicts = [found.verdict for found in findings]
    return [Answer(13, at_least(verdicts, len(verdicts) // 2 + 1), told(dict.fromkeys(findings)))]


def _less_hurt(runs: Runs, experiment: str) -> list[Finding]:
    """A finding for each kind of perturbation: missing before all planned seeds have read it."""
    if not runs.complete(experiment, FIXED, BASELINE):
        return [missing(runs, experiment)] * len(KINDS)
    aggregate, row = runs.experiment(experiment), runs.row(experiment, FIXED)
    sides = row, aggregate.baseline
    if not all(side.finished for side in sides):
        return [Finding(experiment, UNDECIDED, f"{NONE_FINISHED}{lost_seeds(*sides)}")] * len(KINDS)
    found = find(runs.results, aggregate)
    read = {other.key: set(own) for other, own in found.rows} if found else {}
    if any(read.get(side.key, set()) != set(side.seeds) for side in _planned_rows(runs, aggregate)):
        return [missing(runs, experiment)] * len(KINDS)
    findings = []
    for kind in KINDS:
        name, one = title(kind, aggregate).lower(), found.differences.get((row.key, kind))
        if one is None:
            findings.append(Finding(experiment, MISSING, name))
            continue
        low, high = turned_interval(aggregate.metric, one.low, one.high)
        points = (end and 100 * end for end in (turned(aggregate.metric, one.estimate), low, high))
        base = formatting.number(100 * found.loss(aggregate.baseline, kind), 1)
        phrase = f"{name} (softmax loses {base} %) {formatting.estimate(*points, digits=1)} points less lost"
        findings.append(Finding(experiment, unless_lost(verdict_of(low, high), *sides), phrase))
    return findings
