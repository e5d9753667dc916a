"""The plan's questions: each rule against made-up records whose answer is known."""

import re

import pytest
from record_factory import failed, make_record, store

from gpam_suite.aggregate import read_aggregates
from gpam_suite.analysis import store as analyses
from gpam_suite.answers import answer, page
from gpam_suite.answers.answer import BETTER, MISSING, NO, OPEN, UNDECIDED, WORSE, YES, Finding
from gpam_suite.answers.plan import (
    GRID_POINTS,
    LAMBDAS,
    LENGTHS,
    LOOKED_AT,
    MAIN,
    OTHER_DATA,
    PERTURBED,
    PLANNED,
    ROW_SUM,
    SETTINGS,
    main_models,
    models,
    planned_runs,
    questions,
)
from gpam_suite.answers.runs import Runs, compared
from gpam_suite.configuration import CONFIGS

SOFTMAX, AHEAD, BEHIND, LEVEL = (30.0, 30.2, 30.4), 1.0, -1.0, 0.0


def runs_of(experiment, model="dagpam", ahead=LEVEL, seeds=(1, 2, 3), **fields):
    """Records whose scores are ``ahead`` of those of softmax, by a little more or less in each seed, other than in
    models that they are compared with."""
    task = "nmt" if experiment.startswith("nmt") else "lm"
    turn, little = 1 if task == "nmt" else -1, {"dagpam": 0.01, "dagpam_half_sum": 0.03}.get(model, 0.02)
    values = [SOFTMAX[seed - 1] + turn * ahead + little * (seed - 2) for seed in seeds]
    return [
        make_record(task=task, experiment=experiment, model=model, seed=seed, value=value, **fields)
        for seed, value in zip(seeds, values, strict=True)
    ]


def softmax(experiment):
    task = "nmt" if experiment.startswith("nmt") else "lm"
    return [
        make_record(task=task, experiment=experiment, seed=seed, value=value)
        for seed, value in enumerate(SOFTMAX, start=1)
    ]


def beside_softmax(experiment, ahead, **fields):
    """The models of which the plan wants three seeds: daGPAM is ``ahead``, trainable lambdas are level with softmax."""
    third = runs_of(experiment, "dagpam_trainable") if experiment in MAIN else []
    return [*softmax(experiment), *runs_of(experiment, ahead=ahead, **fields), *third]


def numbered(results):
    """Number to answer, of what is below ``results``."""
    return {one.number: one for one in page.answers(results, read_aggregates(results))}


def answered(results, *records):
    """Number to answer."""
    store(results, *records)
    return numbered(results)


# ------------------------------------------------------------------------------------------------------------- the plan


def test_every_question_of_the_plan_has_an_answer(tmp_path):
    asked = questions()
    assert list(asked) == list(range(1, 15)) == [one.number for one in page.answers(tmp_path, [])]
    assert asked[2] == ("In translation?", "better in both directions")
    assert all(question.text.endswith("?") and question.yes for question in asked.values())


def test_every_experiment_is_one_that_the_plan_runs():
    names = (CONFIGS / "evidence.yaml").read_text() + "".join(
        path.read_text() for path in (CONFIGS / "experiment").glob("*.yaml")
    )
    for name in PLANNED:
        start = re.sub(r"_\d+$", "", name)
        assert (
            f"experiment_name: {name}" in names
            or f"experiment_name={name} " in names + " "
            or (f"experiment_name={start}_${{" in names)
        ), name
    parts = (MAIN, OTHER_DATA, LAMBDAS, ROW_SUM, *LENGTHS)
    assert {name for part in parts for name in part} == set(PLANNED)
    assert set(PERTURBED) <= set(MAIN)
    assert [len(models(name)) for name in ("controls", "alternatives", "ablations")] == [3, 14, 2]
    points = re.search(r"model.lambda_pos=(\S+) model.lambda_neg=(\S+)", names)
    assert len(points[1].split(",")) * len(points[2].split(",")) == GRID_POINTS
    for lr, dropout in re.findall(r"optimization.lr=(\[\S+) fairseq.model.dropout=(\S+)", names):
        assert len(lr.split(",")) * len(dropout.split(",")) == SETTINGS
    asked = (MAIN[0], OTHER_DATA[0], LENGTHS[1][1], LAMBDAS[0], ROW_SUM[0])
    assert [planned_runs(name) for name in asked] == [28, 6, 6, 27, 9]
    assert main_models("of_ones_own") == ()


def test_without_runs_everything_is_open_and_a_folder_without_the_plan_says_nothing(tmp_path):
    assert {one.answer for one in page.answers(tmp_path, [])} == {OPEN}
    store(tmp_path, *beside_softmax("small_lm", AHEAD))
    assert page.answered(tmp_path, read_aggregates(tmp_path)) == []


# ----------------------------------------------------------------------------------------------------------- the rules


def test_rules():
    assert answer.all_of([BETTER, BETTER]) == YES
    assert answer.all_of([BETTER, MISSING]) == OPEN
    assert answer.all_of([MISSING, UNDECIDED]) == answer.all_of([WORSE, BETTER]) == NO
    assert answer.at_least([BETTER, BETTER, UNDECIDED, MISSING], 2) == YES
    assert answer.at_least([BETTER, UNDECIDED, MISSING], 2) == OPEN
    assert answer.at_least([BETTER, UNDECIDED, UNDECIDED], 2) == NO
    assert answer.all_of([]) == answer.any_of([]) == OPEN
    assert answer.any_of([OPEN, YES, NO]) == YES
    assert answer.any_of([OPEN, NO]) == OPEN
    assert answer.any_of([NO, NO]) == NO


def test_what_is_missing_is_told_in_one_line():
    lines = answer.told([Finding("a", BETTER, "1"), Finding("b", MISSING, ""), Finding("c", MISSING, "2 of 3 runs")])
    assert lines == ["[a](#a): 1", "not there yet: b, c (2 of 3 runs)"]
    assert answer.told([Finding("a", BETTER, "1"), Finding("a", WORSE, "2")]) == ["[a](#a): 1; 2"]


# ------------------------------------------------------------------------------------------------------ score questions


@pytest.mark.parametrize(
    "first, second, wanted",
    [(AHEAD, AHEAD, YES), (AHEAD, None, OPEN), (BEHIND, None, NO), (AHEAD, LEVEL, NO), (AHEAD, BEHIND, NO)],
)
def test_better_than_softmax_in_both(tmp_path, first, second, wanted):
    for number, (one, other) in ((1, MAIN[:2]), (2, MAIN[2:])):
        records = beside_softmax(one, first) + ([] if second is None else beside_softmax(other, second))
        found = answered(tmp_path / str(number), *records)
        assert found[number].answer == wanted
        assert found[3 - number].answer == OPEN
    assert found[2].evidence[0].startswith(f"[{MAIN[2]}](#{MAIN[2]}): {'+' if first > 0 else '-'}1.00 [")


def test_what_is_not_whole_yet_answers_nothing(tmp_path):
    """Two seeds; a seed that failed and is to be run again; a model whose comparison changes Holm's correction."""
    base, own, third = (beside_softmax(MAIN[0], BEHIND)[place : place + 3] for place in (0, 3, 6))
    assert answered(tmp_path / "whole", *base, *own, *third)[1].answer == NO
    assert answered(tmp_path / "a", *base, *own[:-1], *third)[1].answer == OPEN
    assert answered(tmp_path / "b", *base, *own[:-1], failed(own[-1], status="failed"), *third)[1].answer == OPEN
    assert answered(tmp_path / "c", *base, *own)[1].answer == OPEN


def test_a_side_that_lost_a_seed_is_not_called_better(tmp_path):
    base, own, third = (beside_softmax(MAIN[0], AHEAD)[place : place + 3] for place in (0, 3, 6))
    found = answered(tmp_path / "a", *base, *own[:-1], failed(own[-1]), *third)[1]
    assert found.answer == NO and found.evidence[0].endswith(" perplexity per word, daGPAM: 1 of 3 seeds diverged")
    found = answered(tmp_path / "b", *base, *map(failed, own), *third)[1]
    assert found.answer == NO and "no seed finished on one side, daGPAM: 3 of 3 seeds diverged" in found.evidence[0]
    base, own, third = (beside_softmax("small_nmt", BEHIND)[place : place + 3] for place in (0, 3, 6))
    store(tmp_path / "c", *base[:-1], failed(base[-1]), *own, *third)
    (aggregate,) = read_aggregates(tmp_path / "c")
    runs = Runs(tmp_path / "c", [aggregate])
    assert compared(runs, "small_nmt").verdict == UNDECIDED
    store(tmp_path / "d", *base, *own, *third)
    assert compared(Runs(tmp_path, read_aggregates(tmp_path / "d")), "small_nmt").verdict == WORSE


def test_what_holms_correction_takes_away_is_no_difference(tmp_path):
    experiment = MAIN[2]
    values = dict(enumerate((30.5, 30.72, 31.1), start=1))  # differences 0.5, 0.52, 0.7: p = 0.012
    dagpam = [
        make_record(task="nmt", experiment=experiment, model="dagpam", seed=s, value=v) for s, v in values.items()
    ]
    own = [*softmax(experiment), *dagpam, *runs_of(experiment, "dagpam_trainable")]
    rivals = [record for name in "abcde" for record in runs_of(experiment, f"rival_{name}", LEVEL)]
    assert "Holm" not in answered(tmp_path / "a", *own)[2].evidence[0]
    found = answered(tmp_path / "b", *own, *rivals)[2]
    assert found.answer == NO and "by Holm's method p = 0.0" in found.evidence[0]


def trainable(experiment, ahead, ends):
    options = {"lambda_pos": 0.5, "lambda_neg": 0.5}
    records = runs_of(experiment, "dagpam_trainable", ahead, options=options)
    for record, (pos, neg) in zip(records, ends, strict=True):
        record["learned_scalars"] = {"lambda_pos/a": pos - 0.1, "lambda_pos/b": pos + 0.1, "lambda_neg/a": neg}
    return records


def test_trainable_lambdas_must_be_better_than_fixed_ones_and_go_one_way(tmp_path):
    one_way, two_ways = [(0.1, 0.9)] * 3, [(0.1, 0.9), (0.1, 0.9), (0.6, 0.9)]
    for name, ends, ahead, wanted in (
        ("a", one_way, AHEAD, YES),
        ("b", two_ways, AHEAD, NO),
        ("c", one_way, LEVEL, NO),
    ):
        records = [
            record
            for experiment in MAIN
            for record in softmax(experiment) + runs_of(experiment) + trainable(experiment, ahead, ends)
        ]
        found = answered(tmp_path / name, *records)[3]
        assert found.answer == wanted
        assert "trainable less fixed " in found.evidence[0] and "; less softmax " in found.evidence[0]
        assert (
            f"; lambda+ from 0.5 to 0.10 … {ends[-1][0]:.2f} (mean over modules; single modules 0.00 … "
            f"{ends[-1][0] + 0.1:.2f}); lambda- from 0.5 to 0.90 … 0.90 (mean"
            in found.evidence[0]
            and found.evidence[0].endswith(f"the rows' sum went from 1 to 0.20 … {ends[-1][0] + 0.1:.2f}")
        )
    records = [*softmax(MAIN[0]), *runs_of(MAIN[0]), *trainable(MAIN[0], AHEAD, two_ways)]
    assert answered(tmp_path / "d", *records)[3].answer == NO  # whatever the others say
    assert answered(tmp_path / "e", *records[:-1])[3].answer == OPEN


def test_one_seed_against_the_range_of_seeds_in_every_experiment(tmp_path):
    """daGPAM's seeds lie 1 ahead, so from 0.8 to 1.2 ahead of softmax's middle seed."""

    def found(name, ahead, experiments=MAIN):
        """Each model of one seed ``ahead`` in the experiments, or by a number of its own in each."""
        results = tmp_path / name
        for place, experiment in enumerate(experiments):
            by = {model: own[place] if isinstance(own, tuple) else own for model, own in ahead.items()}
            alone = [one for model, own in by.items() for one in runs_of(experiment, model, own, seeds=(2,))]
            store(results, *beside_softmax(experiment, AHEAD), *alone)
        return numbered(results)

    controls, rivals, ablations = (models(kind) for kind in ("controls", "alternatives", "ablations"))
    everyone = [*controls, *rivals, *ablations]
    good = found("a", {**dict.fromkeys(everyone, 0.9), "softmax_more_heads": 2.0, "dagpam_xavier": 2.0})
    assert (good[4].answer, good[5].answer, good[10].answer) == (YES, YES, YES)
    assert "as good: 3 of 3 (softmax_more_heads " in good[4].evidence[0]
    assert "better or worse: 1 of 2 (dagpam_xavier " in good[10].evidence[0]
    assert good[4].evidence[0].endswith(", daGPAM's seeds 29.41 (worst) to 28.99")
    less = found("b", {**dict.fromkeys(everyone, 0.5), **dict.fromkeys(ablations, 1.0)})
    assert (less[4].answer, less[5].answer, less[10].answer) == (NO, NO, NO)
    mixed = found("c", dict.fromkeys(everyone, (0.9, 0.9, 0.9, 0.5)))
    assert (mixed[4].answer, mixed[5].answer, mixed[10].answer) == (NO, NO, NO)
    some = found("d", dict.fromkeys(everyone, 0.5), MAIN[:1])
    assert (some[4].answer, some[5].answer, some[10].answer) == (NO, NO, OPEN)  # worse in all so far
    few = found("e", {"nap": 0.5, "softmax_more_heads": 0.5})
    assert (few[4].answer, few[5].answer, few[10].answer) == (OPEN, OPEN, OPEN)


def test_a_seed_of_dagpam_that_diverged_is_its_worst(tmp_path):
    """Nothing is worse than it: a rival that finished is not, and one that diverged is level with it."""
    base, own, third = (beside_softmax(MAIN[2], AHEAD)[place : place + 3] for place in (0, 3, 6))
    controls = [record for name in models("controls") for record in runs_of(MAIN[2], name, BEHIND, seeds=(2,))]
    some = answered(tmp_path / "some", *base, *own[:-1], failed(own[-1]), *third, *controls)[4]
    assert (
        some.evidence[0].endswith("daGPAM's seeds diverged (worst) to 31.20, softmax itself 30.20: as good too")
        and "as good: 3 of 3 (" in some.evidence[0]
    )
    lost = answered(tmp_path / "all", *base, *map(failed, own), *third, *map(failed, controls))[4]
    assert "as good: 3 of 3 (softmax_more_heads diverged;" in lost.evidence[0]
    assert ", daGPAM's seeds diverged (worst) to diverged, " in lost.evidence[0]


def test_a_lost_rival_is_not_as_good(tmp_path):
    lost = [failed(record) for name in models("controls") for record in runs_of(MAIN[2], name, 2.0, seeds=(2,))]
    found = answered(tmp_path / "a", *beside_softmax(MAIN[2], AHEAD), *lost)[4]
    assert found.answer == NO and "as good: 0 of 3, " in found.evidence[0]
    again = [{**record, "status": "failed"} for record in lost]
    assert answered(tmp_path / "b", *beside_softmax(MAIN[2], AHEAD), *again)[4].answer == OPEN


def test_other_data_want_one_sign_and_two_clear_differences(tmp_path):
    def found(name, *ahead):
        records = [r for experiment, by in zip(OTHER_DATA, ahead, strict=False) for r in beside_softmax(experiment, by)]
        return answered(tmp_path / name, *records)[11].answer

    assert found("a", AHEAD, AHEAD, 0.005, 0.005) == YES
    assert found("b", AHEAD, AHEAD, AHEAD, -0.005) == NO
    assert found("c", AHEAD, 0.005, 0.005, 0.005) == NO
    assert found("d", AHEAD, AHEAD) == OPEN
    assert found("e", AHEAD, BEHIND) == NO
    last = [*softmax(OTHER_DATA[3]), *map(failed, runs_of(OTHER_DATA[3]))]
    others = [record for experiment in OTHER_DATA[:3] for record in beside_softmax(experiment, AHEAD)]
    assert answered(tmp_path / "f", *others, *last)[11].answer == NO


def test_long_sequences_want_more_than_short_ones(tmp_path):
    def found(name, *ahead):
        names = [experiment for pair in LENGTHS for experiment in pair]
        records = [r for experiment, by in zip(names, ahead, strict=False) for r in beside_softmax(experiment, by)]
        return answered(tmp_path / name, *records)[12].answer

    assert found("a", 0.5, AHEAD, LEVEL, AHEAD) == YES
    assert found("b", 2.0, AHEAD) == NO
    assert found("c", BEHIND, LEVEL) == NO
    assert found("d", LEVEL, AHEAD) == OPEN


def test_the_grid_of_lambdas(tmp_path):
    """Softmax's seeds lie 0.4 apart: good is more than 0.4 ahead of the best, behind is 10 % below the mean of 30.2."""

    def found(name, values, count=GRID_POINTS):
        """A grid at 30 but for ``values``; None is lost."""
        points = [(pos, neg) for pos in (0, 0.5, 1, 2) for neg in (0, 0.25, 0.5, 1, 2, 4)][:count]
        records = []
        for pos, neg in points:
            options, label = {"lambda_pos": pos, "lambda_neg": neg}, f"lambda_neg={neg},lambda_pos={pos}"
            fields = {"task": "nmt", "experiment": LAMBDAS[0], "model": "dagpam", "options": options}
            value = values.get((pos, neg), 30.0)
            record = make_record(value=value or 1.0, overrides_label=label, **fields)
            records.append(record if value else failed(record))
        return answered(tmp_path / name, *softmax(LAMBDAS[0]), *records)[6]

    region = found("a", {(0.5, 0.5): 30.9, (0.5, 1): 31.0, (1, 0): 30.75, (2, 2): 27.3, (2, 4): 27.0, (0, 4): None})
    assert region.answer == YES
    assert region.evidence[0].endswith(
        ": of 24 points (lambda+, lambda-), one seed each, 2 better than softmax's best seed by more than its seeds' "
        "range ((0.5, 0.5), (0.5, 1)), 1 more than 10 % behind ((2, 4)), 1 diverged ((0, 4)); (0, 0), which is softmax "
        "by its formula, lies 0.00 BLEU from softmax of the same seed"
    )
    assert found("b", {(0.5, 0.5): 30.9, (1, 1): 31.0}).answer == OPEN  # two points, no region; the other task is open
    assert found("c", {(0.5, 0.5): 30.9}, 23).evidence == [f"not there yet: {LAMBDAS[0]} (26 of 27 runs), {LAMBDAS[1]}"]


# ---------------------------------------------------------------------------------------------------- inside the models


def looked_at(results, residual, stacks=("decoder",)):
    """An analysis of each run; ``residual`` gives that behind the last layer from model and seed."""
    for found in read_aggregates(results):
        for row in found.rows:
            for record in row.finished:
                last = residual(record["model"], record["seed"])
                stack = {"residual": [0.8, last], "cosine": [0.1, 1 - last], "effective_rank": [9.0, 9 * last]}
                entry = {"config_hash": record["config_hash"], "streams": dict.fromkeys(stacks, stack), "lemmas": {}}
                analyses.write(analyses.path_of_run(results, record), entry)


GRADIENTS = (*LOOKED_AT, *LENGTHS[1])


def looked_into(results, residual, gradient, experiments=GRADIENTS):
    """Answers 7 and 8; ``residual`` and ``gradient`` are made of model and seed."""
    for experiment in experiments:
        for record in beside_softmax(experiment, LEVEL):
            norm = gradient(record["model"], record["seed"])
            store(results, {**record, "gradient_norms": {"key/a": 1.0, "value/a": 1.0, "query/a": norm}})
    looked_at(results, residual)
    return numbered(results)[7], numbered(results)[8]


def larger(model, seed):
    return (0.7 if model == "dagpam" else 0.5) + 0.001 * seed * (model == "dagpam")


def level(model, seed):
    return 0.5 + 0.1 * (seed - 2) * (model == "dagpam")


def test_collapse_and_gradients_want_more_in_every_experiment(tmp_path):
    collapse, gradients = looked_into(tmp_path / "a", larger, level)
    assert (collapse.answer, gradients.answer) == (YES, NO)
    assert "decoder, relative residual 0.702 against 0.500 (+0.202 [" in collapse.evidence[0]
    collapse, gradients = looked_into(tmp_path / "b", level, larger)
    assert (collapse.answer, gradients.answer) == (NO, YES)


def test_collapse_and_gradients_wait_for_every_experiment_and_every_analysis(tmp_path):
    collapse, gradients = looked_into(tmp_path / "a", larger, larger, GRADIENTS[:-1])
    assert (collapse.answer, gradients.answer) == (YES, OPEN)
    collapse, gradients = looked_into(tmp_path / "b", larger, larger, MAIN)
    assert (collapse.answer, gradients.answer) == (OPEN, OPEN)
    looked_into(tmp_path / "c", level, larger, [MAIN[0]])
    next((tmp_path / "c" / "analysis").rglob("*.json")).unlink()
    assert numbered(tmp_path / "c")[7].answer == OPEN


def test_a_history_that_was_not_logged_decides_nothing(tmp_path):
    _, gradients = looked_into(tmp_path / "a", larger, level)
    assert gradients.answer == NO
    records = [record for experiment in GRADIENTS for record in beside_softmax(experiment, LEVEL)]
    assert answered(tmp_path / "b", *records)[8].answer == OPEN


def test_what_diverged_is_not_apart(tmp_path):
    looked_into(tmp_path, larger, larger)
    lost = [failed(record) for record in runs_of(MAIN[0])]
    store(tmp_path, lost[0])
    found = numbered(tmp_path)
    assert (found[7].answer, found[8].answer) == (NO, NO)
    assert found[7].evidence[0].endswith("]), daGPAM: 1 of 3 seeds diverged")
    store(tmp_path, *lost)
    found = numbered(tmp_path)
    assert (found[7].answer, found[8].answer) == (NO, NO)
    assert "no seed finished on one side, daGPAM: 3 of 3 seeds diverged" in found[7].evidence[-1]


def test_less_collapse_with_better_scores_is_read_per_data_set_and_stack(tmp_path):
    """Runs whose residual grows with the score (or falls with the perplexity)."""

    def planned(experiment):
        """As many runs as the plan has, each a little better than the one before."""
        alone = runs_of(experiment, "other", seeds=(1,))[0]
        count = planned_runs(experiment)
        turn = 1 if experiment.startswith("nmt") else -1
        for place in range(count):
            value = 30 + turn * 0.1 * place
            metrics = {**alone["metrics"], f"test_{'bleu' if turn > 0 else 'perplexity'}": value}
            yield {**alone, "model": f"other{place}", "metrics": metrics}

    names = (*LOOKED_AT, *LAMBDAS)
    for better_apart, wanted in ((True, YES), (False, NO)):
        results = tmp_path / wanted
        for experiment in names:
            store(results, *planned(experiment))
        turn = 1 if better_apart else -1
        looked_at(results, lambda model, seed, turn=turn: 0.5 + turn * 0.01 * int(model[5:]), ("encoder", "decoder"))
        found = numbered(results)[9]
        assert found.answer == wanted
        sign = "+" if better_apart else "-"
        assert f"encoder {sign}1.00 [" in found.evidence[0] and f" over 28 runs; decoder {sign}1" in found.evidence[0]
    next((tmp_path / YES / "analysis" / "runs" / MAIN[0]).rglob("*.json")).unlink()
    found = numbered(tmp_path / YES)[9]
    assert found.answer == OPEN and found.evidence[-1] == f"not there yet: {MAIN[0]}"


def test_too_few_finished_runs_show_no_correlation(tmp_path):
    """All runs of the plan ended: nothing is left to wait for."""
    name = OTHER_DATA[1]
    *most, last, least = beside_softmax(name, LEVEL)
    store(tmp_path, *most, failed(last), failed(least))
    looked_at(tmp_path, level)
    found = numbered(tmp_path)[9]
    assert found.answer == NO and found.evidence[0].endswith("): decoder too few runs, or no spread among them")


def test_perturbed_input_must_hurt_less_in_most_kinds(tmp_path):
    kinds = ("characters", "dropped", "swapped", "adversarial")

    def found(name, share):
        """daGPAM loses less than softmax in the first ``share`` kinds, and as much in the others."""
        results = tmp_path / name
        store(results, *[record for experiment in PERTURBED for record in beside_softmax(experiment, LEVEL)])
        for aggregate in read_aggregates(results):
            metrics = ("bleu", "chrf") if aggregate.task == "nmt" else ("perplexity",)
            for record in aggregate.records:
                scores = {}
                for place, kind in enumerate(kinds):
                    loss = 0.2 + 0.001 * record["seed"] * (record["model"] == "dagpam") * (-1) ** record["seed"]
                    loss -= 0.1 * (record["model"] == "dagpam" and place < share)
                    factor = 1 - loss if aggregate.task == "nmt" else 1 + loss
                    scores[kind] = [{"changed": 0.2, **dict.fromkeys(metrics, 50.0 * factor)}]
                entry = {
                    "config_hash": record["config_hash"],
                    "settings": {"kinds": kinds, "rates": [0.2], "seed": 1},
                    "texts": 5,
                    "clean": dict.fromkeys(metrics, 50.0),
                    "kinds": scores,
                }
                analyses.write(analyses.path_of_run(results, record, "perturbed"), entry)
        return numbered(results)[13]

    most = found("a", 3)
    assert most.answer == YES and "character noise (softmax loses 20.0 %) +10.1 [" in most.evidence[0]
    assert most.evidence[1].count("+10.1 [") == 3 and most.evidence[1].endswith(" points less lost")
    assert found("b", 2).answer == NO
    kinds = kinds[:1]
    part = found("c", 1)
    assert part.answer == OPEN and "not there yet: " in part.evidence[-1] and "(dropped words)" in part.evidence[-1]
    for perturbed in (tmp_path / "a" / "perturbed" / "runs").glob("*/dagpam-default/seed1-*.json"):
        perturbed.unlink()
    assert numbered(tmp_path / "a")[13].answer == OPEN


# ---------------------------------------------------------------------------------------------------- the rows' sum


def three_sides(experiment, scaled, same_sum):
    """How far softmax times a number, and daGPAM of that sum, are ahead of softmax."""
    _, first, second = models("row_sum")
    return [*softmax(experiment), *runs_of(experiment, first, scaled), *runs_of(experiment, second, same_sum)]


@pytest.mark.parametrize(
    "scaled, same_sum, answer",
    [(AHEAD, 2 * AHEAD, YES), (AHEAD, AHEAD, NO), (LEVEL, LEVEL, NO), (AHEAD, BEHIND, NO), (BEHIND, LEVEL, YES)],
)
def test_14_more_than_softmax_of_the_same_sum(tmp_path, scaled, same_sum, answer):
    most = [*three_sides(ROW_SUM[0], AHEAD, 2 * AHEAD), *three_sides(ROW_SUM[1], AHEAD, AHEAD)]
    assert answered(tmp_path, *most)[14].answer == OPEN
    found = answered(tmp_path, *three_sides(ROW_SUM[2], scaled, same_sum))[14]
    assert found.answer == answer and len(found.evidence) == 3
    assert re.search(
        r"dagpam_half_sum less softmax_half .*; softmax_half less softmax .*; dagpam_half", found.evidence[2]
    )


# ------------------------------------------------------------------------------------------------------------- the page


def test_page_says_what_was_found_and_links_every_experiment(tmp_path):
    store(
        tmp_path, *beside_softmax(MAIN[0], AHEAD), *beside_softmax(MAIN[2], LEVEL), *beside_softmax("other_lm", BEHIND)
    )
    text = "\n".join(page.answered(tmp_path, read_aggregates(tmp_path)))
    said = "**daGPAM with fixed lambdas (0.5, 0.5) is shown to be better than Softmax in 1 of 2 experiments"
    assert (
        f"{said} ({MAIN[0]}) and worse in 0; with trainable lambdas better than Softmax in 0 of 2 experiments" in text
    )
    assert "**, at 0.1 million parameters and 200 updates, three seeds a side: far below" in text
    others = "Not in the plan, with fixed lambdas: better than Softmax in 0 of 1 experiments and worse in 1 (other_lm)."
    assert others in text and "Of the plan's 12 experiments with both models, 10 are to come." in text
    assert re.search(r"the half-widths of the 95 % intervals are 0\.\d\d perplexity per word, 0\.\d\d BLEU", text)
    assert (
        f"over all 4 comparisons of daGPAM with softmax at once it would leave 1 of 1 difference (daGPAM in {MAIN[0]})."
        in text
    )
    assert f"[{MAIN[0]}](#{MAIN[0]})" in text and text.count("| open |") >= 8
    assert "| 2 | In translation? | no | better in both directions |" in text


def test_a_gain_of_trainable_lambdas_is_told_with_what_stands_beside_it(tmp_path):
    learned = trainable(MAIN[2], AHEAD, [(-0.2, 0.6), (-0.1, 0.6), (-0.15, 0.6)])
    rivals = [*runs_of(MAIN[2], "nap", BEHIND, seeds=(1,)), *runs_of(MAIN[2], "gated", 3 * AHEAD, seeds=(1,))]
    store(tmp_path, *softmax(MAIN[2]), *runs_of(MAIN[2]), *learned, *rivals)
    store(tmp_path, *three_sides(ROW_SUM[0], AHEAD, AHEAD), *three_sides(ROW_SUM[1], 2 * AHEAD, AHEAD))
    said = page.headline(tmp_path, read_aggregates(tmp_path))
    assert (
        f"In {MAIN[2]} trainable lambdas made the rows of weights sum to 0.20 … 0.30, and softmax_half, in the same "
        f"setting ({ROW_SUM[1]}), differs from softmax by +2.00 "
    ) in said
    assert "BLEU, and 1 of 2 other mechanisms, one seed each, beat that by more than the spread of its seeds." in said


def test_rows_that_sum_to_half_are_counted_beside_softmax_of_that_sum(tmp_path):
    """Scaled softmax is ahead in both, daGPAM of that sum further in one of them."""
    halves = [*three_sides(ROW_SUM[0], AHEAD, 2 * AHEAD), *three_sides(ROW_SUM[1], AHEAD, AHEAD)]
    store(tmp_path, *beside_softmax(MAIN[0], LEVEL), *halves, *softmax(ROW_SUM[2]))
    said = page.headline(tmp_path, read_aggregates(tmp_path))
    both = f"better than Softmax in 2 of 2 experiments ({ROW_SUM[0]}, {ROW_SUM[1]}) and worse in 0"
    further = f"better than softmax_half in 1 of 2 experiments ({ROW_SUM[0]}) and worse in 0"
    assert f": dagpam_half_sum {both}; softmax_half {both}; dagpam_half_sum {further}." in said
    assert "over all 4 comparisons of daGPAM with softmax at once it would leave 2 of 2 differences (" in said


def test_a_recipe_that_trains_further_is_named(tmp_path):
    """Its softmax is ahead of every model of the planned experiment, on the same test set."""
    store(tmp_path, *beside_softmax(MAIN[2], AHEAD))
    assert "Training is short" not in page.headline(tmp_path, read_aggregates(tmp_path))
    store(tmp_path, *runs_of("nmt_longer", "softmax", 2 * AHEAD))
    said = page.headline(tmp_path, read_aggregates(tmp_path))
    assert f"the best model of {MAIN[2]} has " in said and "softmax of nmt_longer, another recipe, " in said


@pytest.mark.parametrize("spread, unseen", [(0.01, False), (0.5, True)])
def test_the_papers_gain_is_named_where_it_lies_within_the_intervals(tmp_path, spread, unseen):
    *most, last = beside_softmax(MAIN[2], LEVEL)
    worse = [record for record in most if record["model"] == "dagpam"][-1]
    worse["metrics"]["test_bleu"] += spread
    store(tmp_path, *most, last)
    said = page.headline(tmp_path, read_aggregates(tmp_path))
    assert ("so in 1 of 1 a gain of the paper's 0.52 BLEU could not be seen" in said) == unseen


def test_words_and_characters_are_told_apart(tmp_path):
    records = beside_softmax(MAIN[1], AHEAD)
    by_character = [{**record, "protocol": {**record["protocol"], "unit": "character"}} for record in records]
    store(tmp_path, *beside_softmax(MAIN[0], AHEAD), *by_character)
    aggregates = read_aggregates(tmp_path)
    said = page.headline(tmp_path, aggregates)
    assert re.search(r" are 0\.\d{3} perplexity per character, 0\.\d\d perplexity per word", said)
    assert re.search(r"-1\.000 \[.*\] perplexity per character", page.answers(tmp_path, aggregates)[0].evidence[1])


def test_the_sentence_names_seeds_that_diverged(tmp_path):
    *most, last = beside_softmax(OTHER_DATA[1], AHEAD)
    store(tmp_path, *most, failed(last))
    said = page.headline(tmp_path, read_aggregates(tmp_path))
    assert f"three seeds a side ({OTHER_DATA[1]}, daGPAM: 1 of 3 seeds diverged): far below" in said
