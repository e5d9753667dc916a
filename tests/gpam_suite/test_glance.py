"""The experiments at a glance: gains in percent of softmax's score, from made-up records whose gains are known."""

import pytest
from record_factory import make_record, painted, store

from gpam_suite.aggregate import read_aggregates
from gpam_suite.answers import glance
from gpam_suite.answers.plan import MAIN, ROW_SUM
from gpam_suite.front_page import filled
from gpam_suite.report import build

LM, NMT = MAIN[0], MAIN[2]


def seeds_of(experiment, task, model, values):
    return [
        make_record(task=task, experiment=experiment, model=model, seed=seed, value=value)
        for seed, value in enumerate(values, start=1)
    ]


@pytest.fixture
def results(tmp_path):
    """daGPAM: 10 % less perplexity, clearly, and 1 BLEU of 20 more, in the noise; trainable lambdas: twice the
    perplexity."""
    store(
        tmp_path,
        *seeds_of(LM, "lm", "softmax", (199.0, 200.0, 201.0)),
        *seeds_of(LM, "lm", "dagpam", (179.1, 180.0, 180.9)),
        *seeds_of(LM, "lm", "dagpam_trainable", (400.0, 401.0, 402.0)),
        *seeds_of(NMT, "nmt", "softmax", (19.0, 20.0, 21.0)),
        *seeds_of(NMT, "nmt", "dagpam", (24.0, 19.0, 20.0)),
        *seeds_of(NMT, "nmt", "dagpam_trainable", (20.1, 20.0, 19.8)),
        *seeds_of(NMT, "nmt", "nap", (10.0,)),
    )
    return tmp_path


def test_gains_are_percent_of_softmax_and_above_zero_is_better(results):
    lm, nmt = read_aggregates(results)
    rows = {(found.task, row.model): glance.gain(found, row) for found in (lm, nmt) for row in found.rows}
    assert rows["lm", "softmax"] is None
    assert rows["lm", "dagpam"].estimate == pytest.approx(10.0)
    assert 9 < rows["lm", "dagpam"].low < 10 < rows["lm", "dagpam"].high < 11
    assert rows["lm", "dagpam_trainable"].estimate == pytest.approx(-100.5)
    assert rows["nmt", "dagpam"].estimate == pytest.approx(5.0)
    assert rows["nmt", "dagpam"].low < 0 < rows["nmt", "dagpam"].high
    assert rows["nmt", "nap"] == (pytest.approx(-45.0), None, None)  # of seed 1: 10 against 19, in percent of 20


def test_a_score_of_zero_has_no_percent(tmp_path):
    store(tmp_path, *seeds_of(NMT, "nmt", "softmax", (0.0, 0.0)), *seeds_of(NMT, "nmt", "dagpam", (1.0, 2.0)))
    (aggregate,) = read_aggregates(tmp_path)
    assert glance.gain(aggregate, aggregate.rows[1]) is None
    assert glance.plots(tmp_path, [aggregate]) == []


def test_figures_show_what_is_clear_and_give_every_number(results):
    forest, everyone = glance.plots(results, read_aggregates(results))
    (axes,) = painted(forest)
    texts = [text.get_text() for text in axes.texts]
    assert texts[0].startswith("+10.0 [9.") and any(text.startswith("+5.0 [-") for text in texts)
    legend, clear, unclear = [line.get_markerfacecolor() for line in axes.lines if line.get_marker() == "s"]
    assert legend == clear != "white" == unclear
    (axes,) = painted(everyone)
    cells = {text.get_text(): text.get_fontweight() for text in axes.texts}
    assert [label.get_text() for label in axes.get_yticklabels()] == ["daGPAM", "dagpam_trainable", "NAP"]
    assert cells == {"+5.0": "bold", "-0.2": "bold", "-45.0": "normal"}
    assert "chance ± 12.9 %" in axes.get_xticklabels()[0].get_text()


def test_scaled_softmax_stands_beside_daGPAM_of_the_same_sum(results):
    values = {"softmax": (19.0, 20.0, 21.0), "softmax_half": (21.0, 22.1, 23.0), "dagpam_half_sum": (22.0, 23.1, 24.0)}
    for model, scores in values.items():
        store(results, *seeds_of(ROW_SUM[1], "nmt", model, scores))
    forest, _ = glance.plots(results, read_aggregates(results))
    (axes,) = painted(forest)
    assert [text.get_text().partition(" ")[0] for text in axes.texts][-2:] == ["+15.2", "+10.2"]
    assert "Softmax_half has no negative weights." in forest.caption


def test_an_experiment_of_ones_own_comes_last_and_alone_has_no_glance(results):
    own = [*seeds_of("own", "nmt", "softmax", (30.0, 31.0, 32.0)), *seeds_of("own", "nmt", "dagpam", (30.5, 31.0, 32))]
    store(results, *own)
    (axes,) = painted(glance.plots(results, read_aggregates(results))[0])
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert [label.split("\n")[1] for label in labels] == [LM, NMT, "own (not in the plan)"]
    alone = [found for found in read_aggregates(results) if found.experiment == "own"]
    assert glance.plots(results, alone) == []


def test_pages_link_the_figures_that_are_written(results):
    written = {path.relative_to(results).as_posix() for path in build(results)}
    page = (results / "README.md").read_text(encoding="utf-8")
    for name in ("overview-dagpam", "overview-models"):
        assert {f"figures/{name}.svg", f"figures/{name}.png"} <= written
        assert f"](figures/{name}.svg)" in page
    front = filled("<!-- finding -->\n<!-- end of finding -->\n", results)
    assert "](results/figures/overview-dagpam.svg)" in front and "overview-models" not in front
