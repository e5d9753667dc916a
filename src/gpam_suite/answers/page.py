"""The first section of ``results/README.md``: what was found in a sentence, then every question with its answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpam_suite import formatting
from gpam_suite.aggregate import BASELINE, FIXED, TRAINABLE, Aggregate, Row
from gpam_suite.answers import inside, lambdas, rivals, scores
from gpam_suite.answers.answer import BETTER, OPEN, WORSE, Answer
from gpam_suite.answers.glance import glance
from gpam_suite.answers.plan import LAMBDAS, PLANNED, ROW_SUM, models, of_one_sum, questions
from gpam_suite.answers.runs import Runs, compared, half_width, lost_seeds, p_value
from gpam_suite.formatting import number
from gpam_suite.markup import markdown
from gpam_suite.paper import PAPER_BLEU
from gpam_suite.statistics import CONFIDENCE, holm

_ANSWERS = (
    scores.better,
    lambdas.trainable,
    rivals.rivals,
    lambdas.grid,
    lambdas.row_sum,
    inside.apart,
    inside.correlated,
    scores.elsewhere,
    scores.lengths,
    inside.perturbed,
)


def answers(results: Path, aggregates: Sequence[Aggregate]) -> list[Answer]:
    """All of them, by number, from the planned experiments alone."""
    runs = Runs(results, [found for found in aggregates if found.experiment in PLANNED])
    return sorted(answer for asked in _ANSWERS for answer in asked(runs))


def answered(results: Path, aggregates: Sequence[Aggregate]) -> list[str]:
    """Paragraphs of the report; none where nothing of the plan was run."""
    if not any(found.experiment in PLANNED for found in aggregates):
        return []
    found, asked = answers(results, aggregates), questions()
    table = [
        [str(one.number), asked[one.number].text, one.answer, asked[one.number].yes, "<br>".join(one.evidence)]
        for one in found
    ]
    still = sum(one.answer == OPEN for one in found)
    return [
        "## Answers\n",
        f"{headline(results, aggregates)}\n",
        *glance(results, aggregates),
        "The questions of `docs/experiment-plan.md`, answered from its runs alone and by its rules. Yes means that the "
        "condition beside it is met; no means that it is not, which is not to say that there is no effect: the "
        "intervals (95 %, over three seeds) show what could not be seen. Open means that the runs so far do not decide "
        f"({still} of {len(found)}). Differences are daGPAM less softmax unless they name others; in 9 and 13 their "
        "signs are turned so that above zero is what the question asks for. How the rules were read is said "
        "[below](#what-did-not-go-to-plan).\n",
        markdown(["", "Question", "Answer", "Yes, if", "Evidence"], table),
    ]


def in_a_word(results: Path, aggregates: Sequence[Aggregate]) -> str:
    """A table of the questions and their answers, without the evidence."""
    asked = questions()
    table = [[str(one.number), asked[one.number].text, one.answer] for one in answers(results, aggregates)]
    return markdown(["", "Question", "Answer"], table)


def headline(results: Path, aggregates: Sequence[Aggregate]) -> str:
    """What was found and at what scale in a sentence; in a list how finely, and what the others found."""
    runs = Runs(results, aggregates)
    complete = [found.experiment for found in aggregates if runs.complete(found.experiment, FIXED, BASELINE)]
    planned = [name for name in complete if name in PLANNED]
    others = [name for name in complete if name not in PLANNED]
    halved = [name for name in ROW_SUM if runs.complete(name)]
    sentences = []
    if planned:
        trained = _trained(runs, planned)
        sentences.append(
            "**daGPAM with fixed lambdas (0.5, 0.5) is shown to be "
            f"{_both_counted(runs, planned)}**, at {_scale(runs, planned)}."
        )
        sentences += _at_half_sum(runs, halved)
        sentences += _all_together(runs, {FIXED: planned, TRAINABLE: trained, of_one_sum()[1]: halved})
        sentences += _beside(runs, trained)
        sentences += _further_trained(runs, planned) + _resolution(runs, planned)
        comparisons = len(PLANNED) - len(LAMBDAS) - len(ROW_SUM)
        if left := comparisons - len(planned):
            sentences.append(f"Of the plan's {comparisons} experiments with both models, {left} are to come.")
    if others:
        sentences.append(f"Not in the plan, with fixed lambdas: {_both_counted(runs, others)}.")
    if not sentences:
        return "No experiment has three seeds of softmax and of daGPAM yet."
    first, *more = sentences
    return "\n\n".join([first, "\n".join(f"- {sentence}" for sentence in more)]).rstrip("\n")


def _at_half_sum(runs: Runs, names: Sequence[str]) -> list[str]:
    """Who is better where rows sum to 0.5: daGPAM than softmax, scaled softmax than softmax, daGPAM than that."""
    if not names:
        return []
    scaled, same_sum = of_one_sum()
    pairs = ((same_sum, BASELINE), (scaled, BASELINE), (same_sum, scaled))
    said = [f"{runs.row(names[0], model).label} {_counted(runs, names, model, base)}" for model, base in pairs]
    return [f"With rows that sum to 0.5, as the grids of lambdas suggested: {'; '.join(said)}."]


def _all_together(runs: Runs, counted: Mapping[str, Sequence[str]]) -> list[str]:
    """What Holm's correction over all that is ``counted`` (model to its experiments) leaves of it: within each table
    fewer are compared."""
    pairs = [(name, model) for model, names in counted.items() for name in names]
    shown = [pair for pair in pairs if compared(runs, *pair).verdict in (BETTER, WORSE)]
    if not shown:
        return []
    corrected = holm({pair: p_value(runs, *pair) for pair in pairs})
    left = [pair for pair in shown if corrected[pair] < 1 - CONFIDENCE]
    which = f" ({formatting.listed(f'{runs.row(*pair).label} in {pair[0]}' for pair in left)})" if left else ""
    return [
        f"Holm's correction is within each experiment; over all {len(pairs)} comparisons of daGPAM with softmax at "
        f"once it would leave {len(left)} of {formatting.plural(len(shown), 'difference')}{which}."
    ]


def _trained(runs: Runs, names: Sequence[str]) -> list[str]:
    """Those of ``names`` that have trainable lambdas too."""
    return [name for name in names if runs.complete(name, TRAINABLE)]


def _both_counted(runs: Runs, names: Sequence[str]) -> str:
    trained = _trained(runs, names)
    also = f"; with trainable lambdas {_counted(runs, trained, TRAINABLE)}" if trained else ""
    return f"{_counted(runs, names, FIXED)}{also}"


def _counted(runs: Runs, names: Sequence[str], model: str, base: str = BASELINE) -> str:
    verdicts = [compared(runs, name, model, base).verdict for name in names]
    better, worse = (
        [name for name, own in zip(names, verdicts, strict=True) if own == verdict] for verdict in (BETTER, WORSE)
    )
    than = runs.row(names[0], base).label
    return (
        f"better than {than} in {len(better)} of {len(names)} experiments{_named(better)} and worse in "
        f"{len(worse)}{_named(worse)}"
    )


def _named(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _beside(runs: Runs, names: Sequence[str]) -> list[str]:
    """What belongs beside a gain of trainable lambdas: what they made rows sum to, and what scaled softmax and other
    mechanisms gain."""
    return [
        f"In {name} {', and '.join(said)}."
        for name in names
        if compared(runs, name, TRAINABLE).verdict == BETTER
        and (said := _learned(runs.row(name, TRAINABLE)) + _scaled(runs, name) + _ahead(runs, name))
    ]


def _further_trained(runs: Runs, names: Sequence[str]) -> list[str]:
    """Names a recipe outside the plan under which softmax beats every model of an experiment, on the same test set."""
    sentences = []
    for found in map(runs.experiment, names):
        best = max((score for row in found.rows if (score := found.goodness(row)) is not None), default=float("inf"))
        for other in [other for other in runs.aggregates if other.experiment not in PLANNED]:
            score = other.goodness(other.baseline) if other.baseline and _same_test(found, other) else None
            if score is not None and score > best:
                sentences.append(
                    f"Training is short: on the same test set the best model of {found.experiment} has "
                    f"{number(abs(best), found.digits)} {found.quantity}, softmax of {other.experiment}, another "
                    f"recipe, {number(abs(score), other.digits)}."
                )
    return sentences


def _same_test(one: Aggregate, other: Aggregate) -> bool:
    same = all(one.reference[name] == other.reference[name] for name in ("task", "dataset", "protocol"))
    return same and one.reference["data"]["checksum"] == other.reference["data"]["checksum"]


def _learned(row: Row) -> list[str]:
    sums = lambdas.learned_sums(row)
    return [f"trainable lambdas made the rows of weights sum to {sums}"] if sums else []


def _scaled(runs: Runs, name: str) -> list[str]:
    """How far scaled softmax is from softmax where question 14 has runs of the very same setting."""
    scaled, _ = of_one_sum()
    alike = [other for other in ROW_SUM if runs.complete(other) and _same_setting(runs, name, other)]
    return [
        f"{runs.row(other, scaled).label}, in the same setting ({other}), differs from softmax by "
        f"{compared(runs, other, scaled).phrase} where they differ by {compared(runs, name, TRAINABLE).phrase}"
        for other in alike
    ]


def _same_setting(runs: Runs, *names: str) -> bool:
    """Whether the runs of softmax are the same but for the experiment's name."""
    one, other = (runs.experiment(name) for name in names)
    hashes = [{record["config_hash"] for record in found.baseline.records} for found in (one, other)]
    return _same_test(one, other) and hashes[0] == hashes[1]


def _ahead(runs: Runs, name: str) -> list[str]:
    """How many other mechanisms score better than trainable lambdas."""
    rows = [row for model in (TRAINABLE, *models("alternatives")) if (row := runs.row(name, model))]
    own, *others = (score for row in rows if (score := runs.experiment(name).goodness(row)) is not None)
    spread = runs.row(name, TRAINABLE).summary(runs.experiment(name).metric).sd or 0.0
    ahead = sum(other - spread > own for other in others)
    if not others:
        return []
    return [f"{ahead} of {len(others)} other mechanisms, one seed each, beat that by more than the spread of its seeds"]


def _resolution(runs: Runs, names: Sequence[str]) -> list[str]:
    """Half of the width of the intervals, and whether the paper's gain in BLEU would lie within them."""
    widths: dict[tuple[str, int], list[float]] = {}
    for name in names:
        if (half := half_width(runs, name)) is not None:
            aggregate = runs.experiment(name)
            widths.setdefault((aggregate.quantity, aggregate.digits), []).append(half)
    spans = [
        f"{_span([number(half, digits) for half in sorted(found)])} {quantity}"
        for (quantity, digits), found in widths.items()
    ]
    if not spans:
        return []
    bleu = [half for (quantity, _), found in widths.items() if quantity == "BLEU" for half in found]
    wide = sum(half > PAPER_BLEU for half in bleu)
    unseen = f", so in {wide} of {len(bleu)} a gain of the paper's {PAPER_BLEU} BLEU could not be seen" if wide else ""
    return [f"With fixed lambdas the half-widths of the 95 % intervals are {formatting.listed(spans)}{unseen}."]


def _scale(runs: Runs, names: Sequence[str]) -> str:
    rows = [runs.row(name, model) for name in names for model in (FIXED, BASELINE)]
    sizes = sorted(size / 1e6 for row in rows if (size := row.mean("parameters", "total")) is not None)
    updates = sorted(record["updates"] for row in rows for record in row.finished)
    if not sizes:
        return "sizes unknown, as every run was lost"
    lost = {name: lost_seeds(runs.row(name, FIXED), runs.row(name, BASELINE)) for name in names}
    diverged = "; ".join(f"{name}{seeds}" for name, seeds in lost.items() if seeds)
    return (
        f"{_span([number(size, 1) for size in sizes])} million parameters and "
        f"{_span([formatting.count(update) for update in updates])} updates, three seeds a side"
        f"{f' ({diverged})' if diverged else ''}: far below the paper's scale"
    )


def _span(values: list[str]) -> str:
    return values[0] if values[0] == values[-1] else f"{values[0]} to {values[-1]}"
