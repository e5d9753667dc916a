"""What the records say beside a claim's tests: leads at equal work, gains by other scores, and whether gains differ.
None of it was planned."""

from collections.abc import Iterable, Mapping
from itertools import combinations

from gpam_suite.common.formatting import MISSING, number, p_number
from gpam_suite.common.markup import markdown, markdown_of
from gpam_suite.records.folder import Record
from gpam_suite.records.metrics import METRIC_LABEL
from gpam_suite.report.tables import gain_text, gain_with_interval
from gpam_suite.stats.claim import Claim, on_scale, read_claims
from gpam_suite.stats.curves import at_equal_work, validation
from gpam_suite.stats.finding import Finding
from gpam_suite.stats.over_seeds import difference
from gpam_suite.stats.rows import Aggregate, Row

_PERPLEXITY = "test_perplexity"  # validation's is on the same scale
_WAITS = "Made when all seeds of the plan are there"


def unplanned_parts(shown: Mapping[str, Aggregate], said: Mapping[str, Finding]) -> dict[str, str]:
    """Of each claim ``work-<experiment>``, the leads at equal work of the plan and its parts, ``gains-apart-``, how
    their gains differ, and ``other-scores-``, what the model gains by each score."""
    parts = {}
    for name in read_claims():
        parts[f"work-{name}"] = _at_equal_work(name, shown, said)
        parts[f"gains-apart-{name}"] = _gains_apart(name, said)
        whole = name in said and said[name].whole
        parts[f"other-scores-{name}"] = _by_other_scores(said[name], shown[name]) if whole else f"{_WAITS}.\n"
    return parts


def _at_equal_work(plan: str, shown: Mapping[str, Aggregate], said: Mapping[str, Finding]) -> str:
    """The leads while the rate is held, and at the ends of training, where there are such."""
    of_plan = _of_plan(plan, said)
    made = _while_held(of_plan, shown), _at_the_ends(of_plan, shown)
    return "\n".join(filter(None, made)) or f"{_WAITS}, of schedules by which work can be compared.\n"


def _while_held(of_plan: Mapping[str, Finding], shown: Mapping[str, Aggregate]) -> str:
    """The model over softmax, and where both had another schedule."""
    rows = []
    for name, found in of_plan.items():
        for what, row, other in _pairs(found.claim, found.claim.by_schedule, shown[name]):
            if lead := at_equal_work(row, other):
                each = (gain_text(_PERPLEXITY, float(one)).removesuffix(" %") for one in lead.each)
                rows.append(
                    {
                        "Lead": what,
                        "Seeds": str(len(lead.seeds)),
                        "At equal updates [95 %]": gain_with_interval(_PERPLEXITY, lead.updates),
                        "At equal work [95 %]": gain_with_interval(_PERPLEXITY, lead.work),
                        "At equal work, each validation, %": ", ".join(each),
                        "Work of an update ×": number(lead.ratio, 3),
                        "Level at ×": number(lead.level, 3),
                    }
                )
    if not rows:
        return ""
    how = (
        "Of validation perplexity, while the learning rate is held and from a quarter of training on, a mean over the "
        "validations. At equal work softmax is read as many updates later as the other's update costs more FLOPs "
        "(masked keys counted); the two are level where it costs what the last column says. Not planned, not "
        "corrected.\n"
    )
    return f"{how}\n{markdown_of(rows)}"


def _at_the_ends(of_plan: Mapping[str, Finding], shown: Mapping[str, Aggregate]) -> str:
    """The model over each control that was trained by another number of updates."""
    lines = []
    for name, found in of_plan.items():
        arms = [(found.claim.model, control) for control in found.claim.controls]
        for what, model, other in _pairs(found.claim, arms, shown[name]):
            own, its = (row.finished[0]["updates"] for row in (model, other))
            ratio = model.ratio(other, "flops", "train_per_token")
            if own == its or not ratio:
                continue
            ends = [row.by_seed(_last_validation) for row in (model, other)]
            if seeds := set.intersection(*map(set, ends)):
                updates, work = f"{own:,}, {its:,}", number(ratio * own / its, 3)
                lines.append([what, str(len(seeds)), updates, work, _gain(_PERPLEXITY, *ends)])
    if not lines:
        return ""
    how = "Of validation perplexity at the end of training, each by its own schedule. Not planned, not corrected.\n"
    return f"{how}\n{markdown(['Lead at the end', 'Seeds', 'Updates', 'Work in all ×', 'Gain [95 %]'], lines)}"


def _pairs(claim: Claim, arms: Iterable[tuple[str, str]], shown: Aggregate) -> list[tuple[str, Row, Row]]:
    """What each of the pairs of ``arms`` is called that are both there, and their rows."""
    rows = {row.arm: row for row in shown.rows}
    there = [(rows[one], rows[other]) for one, other in arms if one in rows and other in rows]
    return [(f"{claim.title}: {row.label} over {other.label}", row, other) for row, other in there]


def _of_plan(plan: str, said: Mapping[str, Finding]) -> dict[str, Finding]:
    """The plan's claim and its parts, those that are whole."""
    return {name: one for name, one in said.items() if one.whole and plan in (name, one.claim.part_of)}


def _gains_apart(plan: str, said: Mapping[str, Finding]) -> str:
    """By how much the model's gain over softmax is larger in one experiment of the plan than in another."""
    lines = []
    for one, other in combinations(_of_plan(plan, said).values(), 2):
        if found := one.comparisons[0].gains_more_than(other.comparisons[0]):
            seeds, apart = found
            cells = gain_with_interval(one.metric, apart), p_number(apart.p_value)
            lines.append([one.claim.title, other.claim.title, str(len(seeds)), *cells])
    if not lines:
        return f"{_WAITS} of two experiments.\n"
    how = "Gains over softmax, paired over the seeds that both experiments have. Not planned, not corrected.\n"
    return f"{how}\n{markdown(['The gain in', 'Less that in', 'Seeds', 'Difference [95 %]', 'p'], lines)}"


def _by_other_scores(found: Finding, shown: Aggregate) -> str:
    """The model over softmax and each control, by validation and every score of the test sets."""
    claim = found.claim
    rows = {row.arm: row for row in shown.rows}
    model = rows[claim.model]
    others = [shown.baseline, *(rows[arm] for arm in claim.controls if arm in rows)]
    leads = {one.other: one.validation for one in found.comparisons if one.model == claim.model}
    of_validation = [gain_with_interval(_PERPLEXITY, leads.get(row.arm)) for row in others]
    gains = {"Validation perplexity, of the scored checkpoint": of_validation}
    for metric in METRIC_LABEL:
        if shown.baseline.values(metric):
            gains[METRIC_LABEL[metric]] = [
                _gain(metric, model.values(metric), other.values(metric)) for other in others
            ]
    how = (
        f"Gains of {model.label}: positive where it is better, of perplexity in percent, else in points. Paired over "
        "seeds; but for the plan's own score not planned, and not corrected.\n"
    )
    head = ["Score", *(f"Over {other.label} [95 %]" for other in others)]
    return f"{how}\n{markdown(head, [[name, *cells] for name, cells in gains.items()])}"


def _gain(metric: str, own: Mapping[int, float], base: Mapping[int, float]) -> str:
    """Of scores by seed."""
    on_both = [{seed: on_scale(metric, value) for seed, value in side.items()} for side in (own, base)]
    return gain_with_interval(metric, difference(*on_both)) if all(on_both) else MISSING


def _last_validation(record: Record) -> float | None:
    """Validation perplexity per token behind the last update."""
    return validation(record).get(record["updates"])
