"""The main table, and what is said of each claim, as :mod:`gpam_suite.stats.finding` has it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import yaml

from gpam_suite.common import formatting
from gpam_suite.common.files import safe_name
from gpam_suite.common.formatting import MISSING, listed, number, p_number, percent, signed
from gpam_suite.common.markup import markdown, markdown_of
from gpam_suite.common.places import PUBLISHED
from gpam_suite.records.metrics import IN_PERCENT, LOWER_IS_BETTER, METRIC_LABEL
from gpam_suite.report.provenance import protocol
from gpam_suite.report.tables import difference_cell, gain_text, gain_with_interval, short_table
from gpam_suite.stats.claim import read_claims, secondary_of
from gpam_suite.stats.curves import at_equal_work, scored_update
from gpam_suite.stats.finding import NOT_TRAINED, Comparison, Finding, as_json, compared
from gpam_suite.stats.over_seeds import difference
from gpam_suite.stats.rows import Aggregate

_OF_A_WHOLE_CLAIM = ("comparisons", "scores", "second-test", "controls", "others", "inside-table", "over-arms")
_STANDING = ["Here: softmax → daGPAM", "Gain [95 %]", "Verdict", "Trained? [last tenth]"]
_TRAINED = {True: "yes", False: "no", None: "not known yet"}
_WHAT = {
    True: "A gain is the percentage by which the first model's perplexity is lower, its spread that of the log.",
    False: "A gain is how many points the first model's score is higher.",
}
"""By whether it is in percent."""


def verdicts(said: Mapping[str, Finding]) -> str:
    """A line for each row of the paper (``results/paper/dagpam.yaml``) that a claim tests, then for each claim that is
    none of its rows; behind each the whole parts of its plan, below them the paper's other rows. ``said`` is by
    experiment, the row's ``claim``."""
    lines, others = [], []
    for row in yaml.safe_load((PUBLISHED / "paper" / "dagpam.yaml").read_text(encoding="utf-8"))["rows"]:
        base, own, found = row["baseline"], row["dagpam"], said.get(row.get("claim"))
        paper = row.get("gain", MISSING)
        if base and own:
            gain = percent(1 - own / base) if row["metric"] == "perplexity" else signed(own - base)
            paper = f"{_from_to(base, own)} ({gain})"
        if found:
            lines += [[row["row"], paper, *_standing(found)], *_parts(said, row["claim"])]
        else:
            others.append(f"{row['row']}{'' if paper == MISSING else f', {paper}'}: {row.get('here', 'no runs yet')}")
    for name, found in said.items():
        if not (found.claim.paper or found.claim.part_of):
            lines += [_not_the_papers(found, " (not in the paper)"), *_parts(said, name)]
    table = markdown(["Experiment", "The paper: softmax → daGPAM", *_STANDING], lines)
    return table + (f"\nThe paper's other rows: {'; '.join(others)}.\n" if others else "")


def _parts(said: Mapping[str, Finding], plan: str) -> list[list[str]]:
    """Those of the plan that are whole: they bear on its verdict, and have none of their own."""
    return [_not_the_papers(found) for found in said.values() if found.whole and found.claim.part_of == plan]


def _not_the_papers(found: Finding, note: str = "") -> list[str]:
    title = f"{found.claim.title}, {METRIC_LABEL[found.metric].removeprefix('Test ')}{note}"
    return [title, MISSING, *_standing(found)]


def _from_to(baseline: float, model: float) -> str:
    return f"{number(baseline)} → {number(model)}"


def claim_parts(shown: Mapping[str, Aggregate], said: Mapping[str, Finding]) -> dict[str, str]:
    """Of each claim ``claim-<experiment>``, how it stands; ``comparisons-``, all its tests; ``scores-``, its models;
    ``second-test-``, their scores on a second test set; ``controls-``, each beside softmax and the model;
    ``others-``, those that are compared with softmax alone; ``inside-table-``, what is in softmax and the model;
    ``over-arms-``, how it goes with the gains of all. ``shown`` is by experiment what may be :func:`compared`."""
    waits = {"claim": "No seed of softmax and the model is finished yet.\n"}
    waits |= dict.fromkeys(_OF_A_WHOLE_CLAIM, "Made when all seeds of the plan are there.\n")
    parts = {}
    for name in read_claims():
        made = waits | (_texts(said[name], shown[name]) if name in said else {})
        parts |= {f"{kind}-{name}": text for kind, text in made.items()}
    return parts


def render_claims(results: Path, aggregates: Sequence[Aggregate], said: Mapping[str, Finding]) -> dict[Path, str]:
    """``tables/<experiment>-claim.md`` of every claim that has runs, and ``comparisons/<experiment>.json`` of a whole
    one; ``said`` is what ``aggregates`` say of each."""
    there = {one.experiment: one for one in aggregates}
    files: dict[Path, str] = {}
    for name, found in said.items():
        if found.whole:
            files[results / "comparisons" / f"{safe_name(name)}.json"] = as_json(found)
        texts = _texts(found, compared(there[name], said))
        shown = [text for kind, text in texts.items() if text and kind != "scores"]  # scores: <experiment>.md
        files[results / "tables" / f"{safe_name(name)}-claim.md"] = "\n".join([f"# {found.claim.title}\n", *shown])
    return files


def _texts(found: Finding, shown: Aggregate) -> dict[str, str]:
    """By kind; more than the first where all seeds of the plan are there."""
    if not found.whole:
        return {"claim": _claim(found)}
    return {
        "claim": _claim(found),
        "comparisons": _tests(found),
        "scores": _scores(shown),
        "second-test": _second_test(shown),
        "controls": _controls(found),
        "others": _others(found, shown),
        "inside-table": _inside(found),
        "over-arms": _over_arms(found),
    }


def _claim(found: Finding) -> str:
    """How it stands, and why it is or is not called trained."""
    claim, spread = found.claim, found.comparisons[0].spread
    head, wanted = "Smallest effect of interest", gain_text(found.metric, found.effect)
    if claim.paper and not claim.part_of:
        head, wanted = "The paper", f"{_from_to(**claim.paper)} ({wanted})"
    parts = [
        markdown(["Claim", head, *_STANDING], [[claim.title, wanted, *_standing(found)]]),
        f"Trained? {'; '.join(found.gate.reasons)}.\n",
    ]
    if found.whole and spread is not None:
        shown = f"{number(100 * spread)} %" if found.metric in IN_PERCENT else number(spread)
        without = _without_a_seed(found.comparisons[0])
        parts.append(f"Standard deviation of the gain over seeds: {shown}. {without}\n")
    return "\n".join(parts)


def _without_a_seed(one: Comparison) -> str:
    """How much of what the interval says hangs on single seeds."""
    left = [{seed: gain for seed, gain in one.gains.items() if seed != out} for out in one.gains]
    intervals = [difference(gains, dict.fromkeys(gains, 0.0)) for gains in left]
    above = sum(found.low is not None and found.low > 0 for found in intervals)
    return f"Without one of the seeds, each in turn, the interval lies above no gain in {above} of {len(left)} cases."


def _tests(found: Finding) -> str:
    """Every comparison, and how they were tested."""
    effect = gain_text(found.metric, found.effect)
    more = f" and {found.unplanned} of other arms" if found.unplanned else ""
    how = (
        f"{_WHAT[found.metric in IN_PERCENT]} p values are of t tests paired over the seeds that both have: "
        f"against no gain, against a gain of {effect} or more (below 0.05: excluded), and against one of that size in "
        "either direction (below 0.05: equivalent). Holm's correction is of the first alone, over all "
        f"{secondary_of(found.claim.family)} secondary comparisons of the plan{more}: one that is not made yet counts "
        "with p = 1. The last column is of the same checkpoints, and was not planned.\n"
    )
    if found.claim.part_of:
        how = "Read like the table of its plan.\n"
    rows = [
        {
            "Model": one.labels[0],
            "Against": one.labels[1],
            "Seeds": str(len(one.seeds)),
            "Gain [95 %]": gain_with_interval(found.metric, one.gain),
            "p": p_number(one.gain.p_value),
            "p, Holm": _corrected(one),
            f"p, {effect} or more": p_number(one.against_effect and one.against_effect.p_above),
            "p, equivalent": p_number(one.against_effect and one.against_effect.p_value),
            "By validation perplexity [95 %]": gain_with_interval("test_perplexity", one.validation),
        }
        for one in found.comparisons
    ]
    return f"{how}\n{markdown_of(rows)}"


def _scores(shown: Aggregate) -> str:
    return f"{short_table(shown)}\n{protocol(shown)}\n{_scored(shown)}"


def _scored(shown: Aggregate) -> str:
    """A paragraph on the updates that each model's scored checkpoints are of; nothing where none is known."""
    found: dict[str, list[str]] = {}
    for row in shown.rows:
        if updates := row.by_seed(scored_update).values():
            ends = dict.fromkeys(map(formatting.count, (min(updates), max(updates))))
            found.setdefault(" to ".join(ends), []).append(row.label)
    of = [f"update {ends} of {listed(labels) if len(found) > 1 else 'every model'}" for ends, labels in found.items()]
    return f"\nScored checkpoints: {'; '.join(of)}.\n" if of else ""


def _second_test(shown: Aggregate) -> str:
    """Scores on the second test set, and the difference to softmax in the headline metric; nothing without one."""
    metrics = [metric for metric in METRIC_LABEL if metric.startswith("second_") and shown.baseline.values(metric)]
    if not metrics:
        return ""
    lines = []
    for row in shown.rows:
        scores = [row.summary(metric) for metric in metrics]
        gain = shown.difference(row, metrics[0])
        means = [formatting.plus_minus(one.mean, one.sd, shown.digits) for one in scores]
        lines.append([row.label, *means, difference_cell(gain, shown.digits)])
    titles = [f"{METRIC_LABEL[one]} {'↓' if one in LOWER_IS_BETTER else '↑'}" for one in metrics]
    first = METRIC_LABEL[metrics[0]].partition(",")[0]
    return markdown(["Model", *titles, f"Difference in {first}, over seeds [95 %]"], lines)


def _controls(found: Finding) -> str:
    """Each model that the plan asks about: its seeds, what it gains over softmax, how far the claim's model is ahead of
    it, and what its rows of weights sum to, where that was looked into."""
    primary = found.comparisons[0]
    model, baseline = primary.labels
    gains = {one.model: one for one in found.against_baseline if one.model in found.claim.asked_about}
    leads = {one.other: one for one in found.comparisons if one.model == primary.model}
    labels = {primary.other: baseline} | {name: one.labels[0] for name, one in gains.items()}
    looked = {one.label: one for one in found.weights}
    head = [
        "Model",
        "Seeds",
        f"Gain over {baseline} [95 %]",
        "p, Holm",
        f"Lead of {model}, over it [95 %]",
        "p, Holm",
        "Sum of a row of weights",
        "Share of negative weight",
    ]
    lines = []
    for name, label in labels.items():
        seeds = str(len(gains.get(name, primary).seeds))
        tested = [cell for one in (gains.get(name), leads.get(name)) for cell in _tested(found, one)]
        inside = (looked[label].row_sum, looked[label].negative) if label in looked else (None, None)
        lines.append([label, seeds, *tested, *(number(value, 2) for value in inside)])
    return markdown(head, lines)


def _others(found: Finding, shown: Aggregate) -> str:
    """Each model that is compared with softmax alone, the best first, and beside the claim's model; what it costs, and
    its share of negative weight, where that was looked into."""
    rest = [one for one in found.against_baseline if one.model not in found.claim.asked_about]
    if not rest:
        return ""
    rest.sort(key=lambda one: -one.gain.estimate)
    primary = found.comparisons[0]
    model, baseline = primary.labels
    arms = {row.arm: row for row in shown.rows}
    negative = {one.label: one.negative for one in found.weights}
    rows = []
    for one in rest:
        row = arms[one.model]
        lead, held = one.gains_more_than(primary), at_equal_work(row, shown.baseline)
        rows.append(
            {
                "Model": row.label,
                "Seeds": str(len(one.seeds)),
                f"Gain over {baseline} [95 %]": gain_with_interval(found.metric, one.gain),
                "p, Holm": _corrected(one),
                f"Over {model}, same seeds [95 %]": gain_with_interval(found.metric, lead and lead[1]),
                "Parameters ×": number(shown.ratio(row, "parameters", "total")),
                "FLOPs per token ×": number(shown.ratio(row, "flops", "train_per_token")),
                f"Lead over {baseline} at equal work [95 %]": gain_with_interval("test_perplexity", held and held.work),
                "Share of negative weight": number(negative.get(row.label)),
            }
        )
    how = (
        f"What a model is ahead of {model} by, and leads at equal work, were not planned and are not corrected. The "
        "latter are of validation perplexity while the learning rate is held; masked keys are counted."
    )
    return f"{how}\n\n{markdown_of(rows)}"


def _tested(found: Finding, one: Comparison | None) -> tuple[str, str]:
    """A gain with its interval, and its corrected p value."""
    return (gain_with_interval(found.metric, one.gain), _corrected(one)) if one else (MISSING, MISSING)


def _corrected(one: Comparison) -> str:
    return "primary" if one.primary else p_number(one.holm)


def _inside(found: Finding) -> str:
    """What happens inside the models of the primary comparison; nothing where none of it is known."""
    model, baseline = found.comparisons[0].labels
    if not found.inside:
        return ""
    head = ["Inside the models", baseline, model, "Difference [95 %]", f"With {baseline}'s score", f"With {model}'s"]
    lines = []
    for one in found.inside:
        means = [number(fmean(side.values()), 3) if side else MISSING for side in (one.base, one.own)]
        going = [f"{signed(of.rho)} (p {p_number(of.p_value)})" if of else MISSING for of in one.with_score]
        lines.append([one.quantity, *means, difference_cell(one.difference, 3), *going])
    how = (
        "Means over modules, heads and seeds. The last two columns are rank correlations over the runs of a model "
        "(Spearman): above 0 where runs with more of it score better; p over all orders of the runs, or many "
        "drawn ones, with Holm's correction. They are secondary; intervals of differences are not corrected.\n"
    )
    return f"{how}\n{markdown(head, lines)}"


def _over_arms(found: Finding) -> str:
    """How what is inside models goes with their gains over softmax; nothing where too few arms are known."""
    if not found.over_arms:
        return ""
    how = (
        "Rank correlations over arms (Spearman): above 0 where arms that have more of it than softmax of the same "
        "seeds gain more over it. Not planned; arms share seeds and mechanisms, so there is no p value.\n"
    )
    lines = [[one.quantity, str(one.arms), signed(one.rho)] for one in found.over_arms]
    return f"{how}\n{markdown(['Over all arms', 'Arms', 'With the gain'], lines)}"


def _standing(found: Finding) -> list[str]:
    """The scores, the gain with its interval, the verdict or what it waits for, and whether the models are trained."""
    trained, last = _TRAINED[found.gate.trained], found.gate.last_gain
    if last is not None:
        trained += f" [{100 * last:.2f} %]"
    if not found.whole:
        failed = found.gate.trained is False and not found.claim.part_of
        return [MISSING, MISSING, NOT_TRAINED if failed else f"not yet: {_seeds(found)}", trained]
    first = found.comparisons[0]
    p_value = first.gain.p_value if first.primary else first.holm
    tested = "" if p_value is None else f", {formatting.p_value(p_value)}{'' if first.primary else ' corrected'}"
    own, baseline = first.means
    gain = f"{gain_with_interval(found.metric, first.gain)}{tested}, {_seeds(found)}"
    return [_from_to(baseline, own), gain, found.verdict, trained]


def _seeds(found: Finding) -> str:
    there, planned = len(found.comparisons[0].seeds), found.claim.seeds
    return f"{there} seeds" if there >= planned else f"{there} of {planned} seeds"
