"""Questions 7 to 9 and 13: collapse, gradients, collapse against quality, perturbed input."""

from gpam_suite import formatting
from gpam_suite.aggregate import BASELINE
from gpam_suite.analysis import comparisons, draw_scatter, store
from gpam_suite.analysis.comparisons import Comparison
from gpam_suite.answers.answer import MISSING, UNDECIDED, Answer, Finding, all_of, at_least, told
from gpam_suite.answers.plan import MAIN, PERTURBED
from gpam_suite.answers.runs import FIXED, Runs, lacking, missing, turned, turned_interval, verdict_of
from gpam_suite.perturbation.found import Found, find
from gpam_suite.perturbation.page import TITLES

_KINDS = len(TITLES)


def apart(runs: Runs) -> list[Answer]:
    """7 and 8: what is left of the tokens' differences behind the last layer, and the query's gradients."""
    names = [found.experiment for found in runs.aggregates if runs.complete(found.experiment, FIXED, BASELINE)]
    pairs = [(runs.experiment(name), runs.row(name, FIXED)) for name in names]
    analyses = store.read_runs(runs.results, [record for found, _ in pairs for record in found.records])
    residuals = [one for one in comparisons.collapse(pairs, analyses) if one.name == "residual"]
    queries = [one for one in comparisons.gradients(pairs) if one.name == "query"]
    return [_all_larger(7, residuals, "relative residual", 3), _all_larger(8, queries, "gradient norm", 4)]


def _all_larger(number: int, found: list[Comparison], what: str, digits: int) -> Answer:
    findings = [
        Finding(
            one.aggregate.experiment,
            verdict_of(one.difference.low, one.difference.high),
            _phrase(one, what, digits),
        )
        for one in found
    ]
    findings += lacking(MAIN, findings)
    return Answer(number, all_of([found.verdict for found in findings]), told(findings))


def _phrase(one: Comparison, what: str, digits: int) -> str:
    base, own, change = one.cells(digits)
    return f"{f'{one.stack}, ' if one.stack else ''}{what} {own} against {base} ({change})"


def correlated(runs: Runs) -> list[Answer]:
    """9: the rank correlation over runs of the relative residual behind the last layer with the score, so turned that
    it is above zero where more residual goes with a better score."""
    findings = []
    for aggregate in runs.aggregates:
        found = draw_scatter.correlations(draw_scatter.points(runs.results, aggregate))["residual"]
        if found is not None:
            low, high = turned_interval(aggregate, found.low, found.high)
            rho = f"{formatting.estimate(turned(aggregate, found.rho), low, high)} over {found.count} runs"
            findings.append(Finding(aggregate.experiment, verdict_of(low, high), rho))
    findings += lacking(MAIN, findings)
    return [Answer(9, all_of([found.verdict for found in findings]), told(findings))]


# ------------------------------------------------------------------------------------------------------ perturbed input


def perturbed(runs: Runs) -> list[Answer]:
    """13: a smaller relative loss than softmax's at the largest rate, in most kinds of perturbation."""
    verdicts, findings = [], []
    for name in PERTURBED:
        found = find(runs.results, runs.experiment(name)) if runs.complete(name, FIXED, BASELINE) else None
        own = _kinds(found, runs.row(name, FIXED).key) if found else {}
        verdicts += [verdict for verdict, _ in own.values()] or [MISSING] * _KINDS
        phrase = "; ".join(f"{TITLES[kind].lower()} {change}" for kind, (_, change) in own.items())
        findings.append(Finding(name, UNDECIDED, f"{phrase} points") if own else missing(name))
    return [Answer(13, at_least(verdicts, len(verdicts) // 2 + 1), told(findings))]


def _kinds(found: Found, key: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """Kind of perturbation to verdict and to the change of daGPAM's score less that of softmax's, in points of percent,
    so turned that above zero is less hurt."""
    kinds = {}
    for (row, kind), one in found.differences.items():
        if row == key:
            low, high = turned_interval(found.aggregate, one.low, one.high)
            scaled = (end and 100 * end for end in (turned(found.aggregate, one.estimate), low, high))
            kinds[kind] = (verdict_of(low, high), formatting.estimate(*scaled, digits=1))
    return kinds
