"""What an experiment says of a claim: equivalence tests by hand, the gate, every verdict, none before its time."""

import csv
import dataclasses
import itertools
import json
import math
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from omegaconf import OmegaConf
from record_factory import add_config, add_document_scores, make_record, painted, store
from runs import composed
from scipy import integrate, special, stats

from gpam_suite.common.formatting import p_number
from gpam_suite.config.compose import identity
from gpam_suite.evaluate.kneser_ney import reference_file
from gpam_suite.records.folder import Record
from gpam_suite.records.lines import append_history
from gpam_suite.records.store import path_of_run, write
from gpam_suite.report import page
from gpam_suite.report.claims import claim_parts, render_claims, verdicts
from gpam_suite.report.page import build
from gpam_suite.report.panels.alignment import by_length, sentences
from gpam_suite.report.panels.gains import claimed_gains
from gpam_suite.report.panels.inside import inside_models
from gpam_suite.report.panels.training import by_schedule, trainings
from gpam_suite.report.tables import gain_with_interval
from gpam_suite.report.unplanned import unplanned_parts
from gpam_suite.stats import claim as claims
from gpam_suite.stats import curves, inside_claim
from gpam_suite.stats.aggregate import read_aggregates
from gpam_suite.stats.curves import scored_update
from gpam_suite.stats.finding import (
    CONTRADICTED,
    INCONCLUSIVE,
    NOT_TRAINED,
    SECONDARY,
    SUPPORTED,
    SUPPORTED_SMALLER,
    TRAINING_UNKNOWN,
    compared,
    findings,
)
from gpam_suite.stats.gate import gate, last_gain
from gpam_suite.stats.over_seeds import Difference, equivalence

EFFECT = math.log(108.26 / 106.38)
BOTH = list(itertools.product(("softmax", "dagpam_trainable"), (1, 2)))


def student_tail(t, freedom):
    """``P(T > t)`` by integrating Student's density."""
    constant = special.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * special.gamma(freedom / 2))
    return integrate.quad(lambda x: constant * (1 + x * x / freedom) ** (-(freedom + 1) / 2), t, math.inf)[0]


def test_two_one_sided_tests_by_hand():
    """Differences 1, 2, 3: mean 2, standard deviation 1, error 1 / sqrt(3), two degrees of freedom."""
    found = equivalence({1: 2.0, 2: 4.0, 3: 6.0}, {1: 1.0, 2: 2.0, 3: 3.0}, 5.0)
    assert found.p_below == pytest.approx(student_tail(7 * math.sqrt(3), 2), rel=1e-9)
    assert found.p_above == pytest.approx(student_tail(3 * math.sqrt(3), 2), rel=1e-9)
    assert found.p_above == pytest.approx(0.0175, abs=1e-4) and found.p_value == found.p_above and found.excludes_above
    nearer = equivalence({1: 2.0, 2: 4.0, 3: 6.0}, {1: 1.0, 2: 2.0, 3: 3.0}, 3.0)
    assert nearer.p_above == pytest.approx(student_tail(math.sqrt(3), 2), rel=1e-9)
    assert not nearer.excludes_above
    mirrored = equivalence({1: -2.0, 2: -4.0, 3: -6.0}, {1: -1.0, 2: -2.0, 3: -3.0}, 5.0)
    assert mirrored.p_value == mirrored.p_below == pytest.approx(found.p_above)
    pair = {1: 2.0, 2: 4.0, 3: 6.0}, {1: 1.0, 2: 2.0, 3: 3.0}
    assert equivalence(*pair, 4.0).excludes_above  # p = 0.037
    assert not equivalence(*pair, 3.6).excludes_above  # p = 0.055
    assert equivalence({1: 1.0}, {1: 2.0}, 1.0) is None
    assert equivalence({1: 1.0, 2: 2.0}, {1: 2.0, 2: 3.0}, 1.0) is None  # no spread


def curve(record, gain, updates=200):
    """Validation that still gains ``gain`` in the last tenth of training."""
    for update, perplexity in ((100, 150.0), (180, 100.0), (updates, 100.0 * (1 - gain))):
        append_history(record.folder, {"update": update, "split": "valid", "token_perplexity": perplexity})


def found_in(results):
    return findings(results, read_aggregates(results)).get("lm_ptb")


def rendered(results, aggregates=None):
    aggregates = aggregates or read_aggregates(results)
    return render_claims(results, aggregates, findings(results, aggregates))


def parts_of(results, said):
    """What pages show of claims."""
    shown = {one.experiment: compared(one, said) for one in read_aggregates(results)}
    return claim_parts(shown, said)


def experiment(results, gains, *, last=0.005, softmax=95.0, lstm=120.0, ngram=141.2, more=()):
    """Records of the planned experiment: softmax's seeds spread, daGPAM's are lower by exp(gains)."""
    base = [softmax * math.exp(0.01 * math.sin(seed)) for seed in range(1, len(gains) + 1)]
    made = [make_record(experiment="lm_ptb", value=value, seed=seed) for seed, value in enumerate(base, start=1)]
    for seed, (value, gain) in enumerate(zip(base, gains, strict=True), start=1):
        made.append(
            make_record(experiment="lm_ptb", model="dagpam_trainable", value=value * math.exp(-gain), seed=seed)
        )
    for record in store(results, *made, *more):
        if last is not None:
            curve(record, last)
    if lstm is not None:
        store(results, make_record(experiment="lm_ptb_lstm", model="lstm", model_label="LSTM", value=lstm))
    if ngram is not None:
        path = reference_file(results, made[0]["data"], {}, 5)
        write(path, {"test_perplexity": ngram})
    return found_in(results)


def test_the_figure_of_the_inside_has_every_seed_by_module_and_over_training(tmp_path):
    """Two modules; seed k has lambdas k / 10 and k / 5, and gradients that are k times as large."""
    made, modules, analyses = [], ("decoder.layers.0.self_attn", "decoder.layers.1.self_attn"), {}
    for model, seed in itertools.product(("softmax", "dagpam_trainable"), (1, 2, 3)):
        norms = {f"{kind}/{path}": 0.1 * seed for path in modules for kind in ("query", "key")}
        values = {"lambda_pos": seed / 10, "lambda_neg": seed / 5} if model != "softmax" else {}
        learned = {f"{name}/{path}": value for path in modules for name, value in values.items()}
        made.append(
            make_record(experiment="lm_ptb", model=model, seed=seed, gradient_norms=norms, learned_scalars=learned)
        )
    for record in store(tmp_path, *made):
        for update in (1, 100):
            rows = {f"query/{path}": float(record["seed"] * update * (1 + 2 * k)) for k, path in enumerate(modules)}
            append_history(record.folder, {"update": update, "split": "gradient", **rows})
        share = 0.1 * record["seed"]
        analyses[record.folder] = {
            "modules": {path: {"negative_mass": [share, 3 * share]} for path in modules},
            "streams": {"decoder": {"residual": [0.9, 0.5, 0.5 - share]}},
        }
    (found,) = read_aggregates(tmp_path)
    own = found.row_of("dagpam_trainable")
    lambdas, sums, negative, residual, by_module, over_training = painted(inside_models(found, own, analyses, "some"))

    def drawn(axes):
        return {line.get_label(): [list(line.get_xdata()), list(line.get_ydata())] for line in axes.lines}

    lines = [list(line.get_ydata()) for line in lambdas.lines]
    assert lines[:6] == [[value] * 2 for value in (0.1, 0.2, 0.3, 0.2, 0.4, 0.6)]  # lambda+ of each seed, then lambda-
    assert [line.get_ydata()[0] for line in sums.lines[:3]] == pytest.approx([0.9, 0.8, 0.7])
    assert drawn(negative) == {own.label: [[1, 2], pytest.approx([0.4, 0.4])]}
    assert drawn(residual)[own.label] == [[0, 1, 2], pytest.approx([0.9, 0.5, 0.3])]
    assert drawn(by_module)["Softmax"] == [[1, 2], pytest.approx([0.2, 0.2])]
    assert drawn(over_training)["Softmax"] == [[1, 100], pytest.approx([4.0, 400.0])]
    assert inside_models(found, own, dict(list(analyses.items())[1:]), "some") is None


def test_the_figures_of_cross_attention(tmp_path):
    """Ten pairs of 1 to 10 tokens in five groups of two; seed k's share of negative weight is k / 100 a token."""
    made = [
        make_record(task="nmt", experiment="multi30k_de_en", model=model, seed=seed)
        for model, seed in itertools.product(("softmax", "dagpam_trainable"), (1, 2, 3))
    ]
    one_sign, both_signs = [[[0.7, 0.3]], [[0.7, 0.3]]], [[[0.6, -0.2]], [[-0.4, 1.2]]]
    analyses = {
        record.folder: {
            "alignment": {
                "pairs": [
                    {"tokens": n, "negative": [[0.02 * record["seed"] * n, 0.0]], "sharpness": [[1 / n, 1 / n]]}
                    for n in range(10, 0, -1)
                ],
                "sentences": [
                    {
                        "words": {"encoder": ["a", "b"], "predicted": ["c"]},
                        "weights": one_sign if record["model"] == "softmax" else both_signs,
                    }
                ],
            }
        }
        for record in store(tmp_path, *made)
    }
    (found,) = read_aggregates(tmp_path)
    own = found.row_of("dagpam_trainable")
    negative, sharp = painted(by_length(found, own, analyses, "some"))
    (line,) = (line for line in negative.lines if line.get_label() == own.label)
    assert list(line.get_xdata()) == [1.5, 3.5, 5.5, 7.5, 9.5]
    assert list(line.get_ydata()) == pytest.approx([0.02 * length for length in line.get_xdata()])
    assert sharp.lines[0].get_ydata()[0] == pytest.approx((1 + 1 / 2) / 2)
    softmax, positive, negative, *_ = painted(sentences(found, own, analyses, "some"))
    assert softmax.images[0].get_array().tolist() == [[0.7, 0.3]]
    assert positive.images[0].get_array().tolist() == [[pytest.approx(0.3), pytest.approx(0.6)]]
    assert negative.images[0].get_array().tolist() == [[pytest.approx(-0.2), pytest.approx(-0.1)]]
    assert negative.get_title() == f"{own.label}: negative"
    assert [text.get_text() for text in positive.get_xticklabels()] == ["a", "b"]
    assert [text.get_text() for text in positive.get_yticklabels()] == ["c"]
    analyses[own.finished[0].folder] = {}
    assert by_length(found, own, analyses, "some") is None and sentences(found, own, analyses, "some") is None


def test_the_figure_shows_what_each_seed_gains(tmp_path):
    """Over softmax alone: what the model gains over its control is in no line."""
    gains = seven(0.01)
    found = experiment(tmp_path, gains, more=scaled())
    (axes,) = painted(claimed_gains({"lm_ptb": found}))
    assert [text.get_text() for text in axes.get_yticklabels()] == [one.labels[0] for one in found.comparisons[:2]]
    assert found.comparisons[2].other == "softmax_scaled"
    percent = [100 * (1 - math.exp(-gain)) for gain in gains]
    assert list(axes.lines[0].get_xdata()) == pytest.approx(percent)
    assert list(axes.lines[1].get_xdata()) == pytest.approx([100 * (1 - math.exp(-sum(gains) / 7))])
    paper = next(line for line in axes.lines if line.get_label() == "the paper's gain")
    assert paper.get_xdata()[0] == pytest.approx(100 * (1 - 106.38 / 108.26))
    assert claimed_gains({}) is None
    assert axes.lines[0].get_markerfacecolor() != "none"  # p < 0.001
    (axes,) = painted(claimed_gains({"lm_ptb": experiment(tmp_path / "less", seven(0.001))}))
    assert axes.lines[0].get_markerfacecolor() == "none"  # p = 0.45


def test_a_model_that_is_far_behind_is_a_number_at_the_edge_and_no_control(tmp_path):
    flops = {"train_per_token": 1.5 * 600_000}
    more = [
        make_record(experiment="lm_ptb", model="non", model_label="NON", seed=k, value=122.0 + k, flops=flops)
        for k in (1, 2, 3)
    ]
    found = experiment(tmp_path, seven(0.01), more=[*scaled(), *more])
    plot = claimed_gains({"lm_ptb": found})
    (axes,) = painted(plot)
    assert [text.get_text() for text in axes.get_yticklabels()][1:] == ["NON", "softmax_scaled"]
    (edge,) = axes.texts
    assert re.fullmatch(r"◂ -\d\d\.\d\d", edge.get_text()) and axes.get_xlim()[0] > -5
    assert "number at the edge" in plot.caption
    parts = parts_of(tmp_path, {"lm_ptb": found})
    (line,) = (line for line in parts["others-lm_ptb"].splitlines() if line.startswith("| NON | 3 | "))
    (scores,) = (one for one in read_aggregates(tmp_path) if one.experiment == "lm_ptb")
    own, dagpam = (scores.row_of(model).values("test_perplexity") for model in ("non", "dagpam_trainable"))
    behind = [math.log(dagpam[seed] / own[seed]) for seed in (1, 2, 3)]
    gains = (sum(behind) / 3, *stats.ttest_1samp(behind, 0.0).confidence_interval(0.95))
    center, low, high = (f"{100 * claims.share_lower(gain):+.2f} %" for gain in gains)
    assert line.endswith(f" | {center} [{low}, {high}] | 1.00 | 1.50 | – | – |")
    assert "| NON |" not in parts["controls-lm_ptb"]
    assert "softmax_scaled" in parts["controls-lm_ptb"] and "softmax_scaled" not in parts["others-lm_ptb"]


def test_the_figure_of_trainings_shows_how_far_ahead_each_seed_is(tmp_path):
    found = experiment(tmp_path, [0.0, 0.0, 0.0], last=None)
    lower = {1: 0.99, 2: 0.98, 3: 0.94}
    (aggregate,) = (one for one in read_aggregates(tmp_path) if one.experiment == "lm_ptb")
    for row in aggregate.rows:  # alike at update 200; softmax alone is validated at 400
        for record in row.finished:
            factor = lower[record["seed"]] if row.model == "dagpam_trainable" else 1.0
            validations = {200: 100.0, 300: 90.0 * (1 + 0.1 * record["seed"]) * factor}
            for update, perplexity in (validations | ({400: 90.0} if row is aggregate.baseline else {})).items():
                append_history(record.folder, {"update": update, "split": "valid", "token_perplexity": perplexity})
    perplexities, ahead = painted(trainings(aggregate, found, "some"))
    assert list(perplexities.lines[0].get_xdata()) == [200, 300, 400]
    assert list(ahead.lines[0].get_xdata()) == [200, 300]
    assert list(ahead.lines[0].get_ydata()) == pytest.approx([0, (1 + 2 + 6) / 3])
    paper = next(line for line in ahead.lines if line.get_label() == "the paper's gain")
    assert paper.get_ydata()[0] == pytest.approx(100 * (1 - 106.38 / 108.26))


def test_a_lead_at_equal_work_is_read_where_the_rate_is_held(tmp_path):
    """Softmax falls as ``u ** -0.5``: of a lead g, g - 0.5 ln r is left where an update costs r times as much."""
    gains, ratio = {1: 0.02, 2: 0.05, 3: 0.08}, 1.2
    held = {"fairseq__lr_scheduler__phase_ratio": [0.1, 0.6, 0.3], "fairseq__optimization__max_update": 1000}
    for model in ("softmax", "dagpam_trainable", "gated"):
        ours = model != "softmax"
        flops = {"train_per_token": 600_000 * (ratio if ours else 1)}
        made = [
            make_record(experiment="lm_ptb_long", model=model, seed=seed, updates=1000, flops=flops) for seed in gains
        ]
        for record in store(tmp_path, *made):
            add_config(record, **held)
            for update in range(100, 1100, 100):  # at the rate's fall daGPAM's lead is another, and plays no part
                lead = ours * (1.0 if update > 500 or update < 250 else gains[record["seed"]])
                value = 900 * (update**-0.5 if update <= 700 else 0.1) * math.exp(-lead)
                append_history(record.folder, {"update": update, "split": "valid", "token_perplexity": value})
    (aggregate,) = read_aggregates(tmp_path)
    row, softmax = aggregate.row_of("dagpam_trainable"), aggregate.baseline
    lead = curves.at_equal_work(row, softmax)
    assert lead.seeds == [1, 2, 3] and lead.ratio == pytest.approx(ratio)
    for found, mean in ((lead.updates, 0.05), (lead.work, 0.05 - 0.5 * math.log(ratio))):
        assert found.estimate == pytest.approx(mean)
        half = stats.t.ppf(0.975, 2) * 0.03 / math.sqrt(3)
        assert (found.low, found.high) == pytest.approx((mean - half, mean + half))
    assert lead.each == pytest.approx([0.05 - 0.5 * math.log(ratio)] * 3)  # at 300, 400 and 500
    assert lead.level == pytest.approx(math.exp(0.1))
    said = findings(tmp_path, [aggregate])
    shown = f"{100 * claims.share_lower(lead.work.estimate):+.2f} % ["
    for plan in ("lm_ptb", "lm_ptb_long"):  # that of the plan has its parts
        table = unplanned_parts({"lm_ptb_long": aggregate}, said)[f"work-{plan}"]
        assert shown in table and "three times as long, dropout 0.2: dagpam_trainable over Softmax" in table
    of_bleu = {name: dataclasses.replace(one, metric="test_bleu") for name, one in said.items()}
    assert shown in unplanned_parts({"lm_ptb_long": aggregate}, of_bleu)["work-lm_ptb"]  # of perplexity as well
    others = claim_parts({"lm_ptb_long": aggregate}, said)["others-lm_ptb_long"]
    assert f" | 1.20 | {shown}" in others and "Lead over Softmax at equal work [95 %]" in others
    back = curves.at_equal_work(softmax, row)  # u r below the first validation, and u behind the last, are left out
    assert back.ratio == pytest.approx(1 / ratio) and len(back.each) == 5  # 300 to 700
    assert back.level is None  # it is behind at equal updates
    for record in (*softmax.finished, *row.finished):
        add_config(record)  # a rate that is not held
    (again,) = read_aggregates(tmp_path)
    assert curves.at_equal_work(again.row_of("dagpam_trainable"), again.baseline) is None


def test_a_lead_at_the_ends_of_two_schedules(tmp_path):
    """Of gains 0.02 k and 0.01 k over softmax: 0.04 apart in the mean of seeds 1 to 7, with a spread of 0.01 sd(1..7).
    daGPAM's 7,830 updates of 1.02 times the work against 8,030."""
    for model, updates, gain in (
        ("softmax", 7830, 0.0),
        ("dagpam_trainable", 7830, 0.02),
        ("softmax_longer", 8030, 0.01),
    ):
        work = {"train_per_token": 600_000 * (1.02 if model == "dagpam_trainable" else 1)}
        of_run = {"task": "nmt", "experiment": "multi30k_de_en", "model": model, "updates": updates, "flops": work}
        for record in store(tmp_path, *(make_record(seed=seed, **of_run) for seed in range(1, 8))):
            add_config(record, fairseq__optimization__max_update=updates)
            at_the_end = 5 * math.exp(-gain * record["seed"])
            for update, value in ((updates - 100, 9.0), (updates, at_the_end)):
                append_history(record.folder, {"update": update, "split": "valid", "token_perplexity": value})
    (aggregate,) = read_aggregates(tmp_path)
    made = unplanned_parts({"multi30k_de_en": aggregate}, findings(tmp_path, [aggregate]))["work-multi30k_de_en"]
    *_, line = made.splitlines()
    half = stats.t.ppf(0.975, 6) * 0.01 * math.sqrt(14 / 3) / math.sqrt(7)
    low, high = (100 * claims.share_lower(0.04 + side * half) for side in (-1, 1))
    gain = f"+{100 * claims.share_lower(0.04):.2f} % [{low:+.2f} %, {high:+.2f} %]"
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["7", "7,830, 8,030", "0.995", gain]
    assert "rate is held" not in made  # by no schedule here


def test_gains_by_other_scores_are_positive_where_the_model_is_better(tmp_path):
    for model, ahead in (("softmax", 0.0), ("dagpam_trainable", 1.0)):
        for seed in range(1, 8):
            gain = ahead * (1 + 0.1 * seed)  # of mean 1.4
            metrics = {"test_bleu": 40 + seed + gain, "test_chrf": 60 - 2 * gain, "test_ter": 50 - 3 * gain}
            record = make_record(task="nmt", experiment="multi30k_de_en", model=model, seed=seed, metrics=metrics)
            (stored,) = store(tmp_path, record)
            value = 5 * math.exp(-0.01 * gain)
            append_history(stored.folder, {"update": 9, "split": "valid", "token_perplexity": value, "loss_bits": 1.0})
    (aggregate,) = read_aggregates(tmp_path)
    table = unplanned_parts({"multi30k_de_en": aggregate}, findings(tmp_path, [aggregate]))
    lines = [line.split(" | ") for line in table["other-scores-multi30k_de_en"].splitlines() if line.startswith("| ")]
    found = {name.removeprefix("| "): cell.split(" [")[0] for name, cell in lines[2:]}
    assert found == {
        "Validation perplexity, of the scored checkpoint": "+1.39 %",
        "Test BLEU": "+1.40",
        "Test chrF": "-2.80",
        "Test TER": "+4.20",
    }
    assert "schedules by which work" in table["work-multi30k_de_en"]


def test_gains_of_a_plans_experiments_are_told_apart(tmp_path):
    """Of gains 3.5, 5, 6.5 and 1, 1, 1 (in 100 ln): 4 apart, with a standard deviation of 1.5; seeds of one side play
    no part."""
    gains = {"lm_ptb": [3.5, 5, 6.5, 6, 6, 6, 6], "lm_ptb_long": [1, 1, 1]}
    for name, own in gains.items():
        for seed, gain in enumerate(own, start=1):
            for model, ahead in (("softmax", 0), ("dagpam_trainable", 1)):
                value = 100 * math.exp(-ahead * gain / 100)
                store(tmp_path, make_record(experiment=name, model=model, seed=seed, value=value))
    aggregates = {one.experiment: one for one in read_aggregates(tmp_path)}
    parts = unplanned_parts(aggregates, findings(tmp_path, list(aggregates.values())))
    *_, line = parts["gains-apart-lm_ptb"].splitlines()
    _, _, _, seeds, shown, p, _ = (cell.strip() for cell in line.split("|"))
    half = stats.t.ppf(0.975, 2) * 0.015 / math.sqrt(3)
    low, high = (100 * claims.share_lower(0.04 + side * half) for side in (-1, 1))
    assert (seeds, shown) == ("3", f"+{100 * claims.share_lower(0.04):.2f} % [{low:+.2f} %, {high:+.2f} %]")
    assert p == p_number(2 * student_tail(0.04 / (0.015 / math.sqrt(3)), 2))
    assert parts["gains-apart-lm_ptb_long"].startswith("Made when")


def test_the_figure_of_schedules_compares_what_is_alike(tmp_path):
    """daGPAM is ahead of softmax of its own schedule by 2 % and by 1 %, whatever the schedules do."""
    longer = {"overrides_label": "max_update=3387"}
    arms = [
        ("softmax", 100.0, {}),
        ("dagpam_trainable", 98.0, {}),
        ("softmax_longer", 60.0, longer),
        ("dagpam_trainable", 59.4, longer),
    ]
    for model, value, options in arms:
        made = (make_record(experiment="lm_ptb", model=model, seed=seed, **options) for seed in (1, 2))
        for record in store(tmp_path, *made):
            for update in (100, 200):
                append_history(record.folder, {"update": update, "split": "valid", "token_perplexity": value})
    (aggregate,) = read_aggregates(tmp_path)
    said = findings(tmp_path, [aggregate])["lm_ptb"]
    of_one, of_each = painted(by_schedule(aggregate, said, "some"))
    assert [line.get_ydata()[0] for line in of_each.lines[:2]] == pytest.approx([2, 1])
    assert [line.get_ydata()[0] for line in of_one.lines[:3]] == pytest.approx([2, 40.6, 40])
    fewer = replace(aggregate, rows=tuple(row for row in aggregate.rows if row.model != "softmax_longer"))
    assert by_schedule(fewer, said, "some") is None


def test_how_much_hangs_on_one_seed_is_told(tmp_path):
    """Of the gains 1, 1.1 and 3 the interval lies above 0 without the third alone."""
    gains = {1: 0.010, 2: 0.011, 3: 0.030}
    for model, ahead in (("softmax", 0), ("dagpam_trainable", 1)):
        made = (
            make_record(experiment="lm_ptb_long", model=model, seed=seed, value=90 * math.exp(-ahead * gain))
            for seed, gain in gains.items()
        )
        store(tmp_path, *made)
    (aggregate,) = read_aggregates(tmp_path)
    said = findings(tmp_path, [aggregate])
    table = claim_parts({"lm_ptb_long": aggregate}, said)["claim-lm_ptb_long"]
    assert "seeds: 1.13 %. Without one of the seeds, each in turn, the interval" in table
    assert "lies above no gain in 1 of 3 cases" in table


NOISE = [0.003, -0.004, 0.001, 0.005, -0.002, -0.003, 0.0]


def seven(mean, spread=1.0):
    return [mean + spread * noise for noise in NOISE]


@pytest.mark.parametrize(
    "gains, wanted",
    [
        (seven(EFFECT), SUPPORTED),
        (seven(0.008), SUPPORTED_SMALLER),
        (seven(0.0), CONTRADICTED),
        (seven(-0.02), CONTRADICTED),
        (seven(0.01, spread=3.5), INCONCLUSIVE),
    ],
)
def test_verdicts(tmp_path, gains, wanted):
    found = experiment(tmp_path, gains)
    primary = found.comparisons[0]
    assert found.verdict == wanted and found.effect == pytest.approx(EFFECT)
    assert primary.gain.estimate == pytest.approx(sum(gains) / 7)
    assert primary.primary and primary.holm is None and primary.seeds == tuple(range(1, 8))
    if gains == seven(0.008):
        assert primary.against_effect.excludes_above


@pytest.mark.parametrize(
    ("metric", "low", "wanted"),
    [("test_bleu", 0.004, "+0.300 [+0.004, +0.596]"), ("test_bleu", 0.1, "+0.30 [+0.10, +0.50]")],
)
def test_on_which_side_of_no_gain_a_bound_is_can_be_seen(metric, low, wanted):
    assert gain_with_interval(metric, Difference(0.3, low, 0.6 - low, "by hand")) == wanted


def test_runs_of_other_sizes_under_a_plans_name_get_no_verdict_of_it(tmp_path, caplog):
    """But are compared like any runs of somebody's own."""
    experiment(tmp_path, seven(EFFECT))
    build(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert re.search(
        r"lm_ptb is the name of a plan, whose runs have [\w.]+ .*, and these .*: they get no verdict", text
    )
    assert "they get no verdict" in caplog.text and "Difference over seeds" in text
    assert not list(tmp_path.glob("*/lm_ptb-claim.md")) and not list(tmp_path.glob("comparisons/*"))


@pytest.mark.parametrize("name", ["lm_ptb", "multi30k_de_en"])
def test_what_a_plans_experiment_trains_is_of_the_plan(name):
    for words, said in (
        ([], None),
        (["fairseq.model.dropout=0.4"], "fairseq.model.dropout 0.[12], and these 0.4"),
        (["+fairseq.model.activation_dropout=0.4"], "fairseq.model.activation_dropout not set, and these 0.4"),
        (["~fairseq.optimizer.weight_decay"], "fairseq.optimizer.weight_decay 0[.0-9]*, and these not set"),
    ):
        config = OmegaConf.to_container(OmegaConf.create(identity(composed(f"experiment={name}", *words))))
        found = page.unlike_its_plan(SimpleNamespace(experiment=name, reference=SimpleNamespace(config=config)))
        assert found is None if said is None else re.search(said, found)


def test_no_verdict_before_the_planned_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "unlike_its_plan", lambda _: None)
    assert found_in(tmp_path) is None
    found = experiment(tmp_path, seven(EFFECT)[:6])
    assert found.verdict is None and len(found.comparisons[0].seeds) == 6
    (table,) = rendered(tmp_path).values()  # and no comparisons/lm_ptb.json
    assert "| – | not yet: 6 of 7 seeds | yes [0.50 %] |" in table
    assert "supported" not in table and "Against" not in table  # no look at six of seven
    experiment(tmp_path / "untrained", seven(EFFECT)[:6], last=0.02)
    (table,) = rendered(tmp_path / "untrained").values()  # more seeds change nothing
    assert "| – | none: not trained enough | no [2.00 %] |" in table
    build(tmp_path)
    text, of_all = (tmp_path / "README.md").read_text(), (tmp_path / "tables" / "lm_ptb.csv").read_text()
    assert "Difference" not in text and "No difference is shown yet of dagpam_trainable" in text
    assert {line["difference"] for line in csv.DictReader(of_all.splitlines())} == {""}


def test_the_planned_seeds_are_those_from_one_on_and_none_of_them_failed(tmp_path):
    found = experiment(tmp_path, [*seven(EFFECT), 0.01])
    assert found.whole
    build(tmp_path)
    assert "Difference over seeds" in (tmp_path / "README.md").read_text()
    beyond = [make_record(experiment="lm_ptb", model=model, seed=0) for model in ("softmax", "dagpam_trainable")]
    store(tmp_path, *beyond)
    assert found_in(tmp_path).comparisons[0].seeds == tuple(range(1, 8))
    (first,) = (path for path in (tmp_path / "runs" / "lm_ptb").glob("dagpam_trainable-*/seed1-*"))
    shutil.rmtree(first)
    assert not found_in(tmp_path).whole  # seven seeds, 2 to 8
    failed = make_record(experiment="lm_ptb", model="dagpam_trainable", seed=1, status="failed", reason="killed")
    store(tmp_path, failed)
    assert not found_in(tmp_path).whole
    store(tmp_path, failed | {"status": "diverged"})
    assert found_in(tmp_path).whole


def test_seeds_whose_gains_spread_further_than_planned_ask_for_more(tmp_path):
    """By the standard deviation of the first seven alone, whatever the next ones do."""
    wide = seven(EFFECT, spread=4.0)
    assert np.std(wide, ddof=1) > 0.012 > np.std(seven(EFFECT), ddof=1)
    found = experiment(tmp_path / "a", wide)
    assert found.verdict is None
    (table,) = rendered(tmp_path / "a").values()
    assert "| – | not yet: 7 of 10 seeds | yes [0.50 %] |" in table
    extended = [*wide, EFFECT, EFFECT, EFFECT]
    assert np.std(extended, ddof=1) < 0.012
    found = experiment(tmp_path / "b", extended, more=scaled())
    assert found.verdict == SUPPORTED and found.comparisons[0].seeds == tuple(range(1, 11))
    assert len(found.comparisons) == 1  # the control has seven seeds, and needs ten as well


def test_seeds_beyond_the_plan_play_no_part(tmp_path):
    enough = experiment(tmp_path / "a", seven(EFFECT))
    more = experiment(tmp_path / "b", [*seven(EFFECT), 0.1, -0.1, 0.1], more=[*scaled(), scaled()[0] | {"seed": 8}])
    assert more.comparisons[0] == enough.comparisons[0] and more.verdict == SUPPORTED
    assert all(one.seeds == tuple(range(1, 8)) for one in more.comparisons) and len(more.comparisons) == 3
    (whole,) = (one for one in read_aggregates(tmp_path / "b") if one.experiment == "lm_ptb")
    assert [len(row.records) for row in compared(whole, {"lm_ptb": more}).rows] == [7, 7, 7]


def stepped_down(*secondary):
    """Holm's p values, sorted, where the plan's other comparisons have p = 1."""
    raw = sorted(one.gain.p_value for one in secondary)
    planned = claims.secondary_of("lm_ptb")
    return list(itertools.accumulate((min(1, (planned - index) * p) for index, p in enumerate(raw)), max))


def test_an_arm_that_is_in_no_plan_counts_beside_the_planned_comparisons(tmp_path):
    sigmoid = [make_record(experiment="lm_ptb", model="sigmoid", value=96.0 + seed, seed=seed) for seed in (1, 2, 3)]
    planned = claims.secondary_of("lm_ptb")
    for folder, more, counted in (("a", [], planned), ("b", sigmoid, planned + 1)):
        found = experiment(tmp_path / folder, seven(EFFECT), more=[*scaled(), *more])
        first = min(found.comparisons[1:], key=lambda one: one.gain.p_value)
        assert first.holm == pytest.approx(min(1, counted * first.gain.p_value)) and first.holm < 1
        (aggregate,) = (one for one in read_aggregates(tmp_path / folder) if one.experiment == "lm_ptb")
        table = claim_parts({"lm_ptb": aggregate}, {"lm_ptb": found})["comparisons-lm_ptb"]
        assert f"all {planned} secondary comparisons of the plan{' and 1 of other arms' if more else ''}: one" in table


def test_a_part_of_a_plan_has_no_verdict_and_is_corrected_with_the_rest(tmp_path):
    longer = [
        make_record(experiment="lm_ptb_long", model=model, value=80.0 + seed + extra[seed], seed=seed)
        for model, extra in (("softmax", [0] * 4), ("dagpam_trainable", [0, -1.0, -2.0, -1.5]))
        for seed in (1, 2, 3)
    ]
    alone = experiment(tmp_path / "a", seven(EFFECT), more=scaled()).comparisons[1:]
    for folder, more in (("b", longer[:-1]), ("c", longer)):
        experiment(tmp_path / folder, seven(EFFECT), more=scaled() + more)
        said = findings(tmp_path / folder, read_aggregates(tmp_path / folder))
        (part,) = said["lm_ptb_long"].comparisons
        secondary = said["lm_ptb"].comparisons[1:]
        behind = verdicts(said).splitlines()[3]
        if folder == "b":  # a seed is missing
            assert said["lm_ptb_long"].verdict is None and secondary == alone and "longer" not in behind
    assert said["lm_ptb_long"].verdict == SECONDARY and not part.primary
    whole, below = painted(claimed_gains(said))
    assert whole.get_xlim() == below.get_xlim()
    assert behind.startswith(
        "| Penn Treebank, 15 layers, three times as long, dropout 0.2, perplexity | – | 82.00 → 80.50 | +"
    )
    assert f", p = {part.holm:.3f} corrected, 3 seeds | {SECONDARY} |" in behind
    assert sorted(one.holm for one in (part, *secondary)) == pytest.approx(stepped_down(part, *secondary))


@pytest.mark.parametrize("change", [("protocol", "context_window", 1), ("data", "checksum", "sha256:0")])
def test_a_reference_that_was_scored_otherwise_is_none(change, tmp_path):
    experiment(tmp_path, seven(EFFECT), lstm=None)
    other = make_record(experiment="lm_ptb_lstm", model="lstm", model_label="LSTM", value=120.0)
    part, name, value = change
    store(tmp_path, other | {part: other[part] | {name: value}})
    assert found_in(tmp_path).gate.trained is None


@pytest.mark.parametrize(
    "how, trained, verdict, reason",
    [
        ({}, True, SUPPORTED, "at most 0.50 %"),
        ({"last": 0.011}, False, NOT_TRAINED, "at most 1.10 %"),
        ({"lstm": 90.0}, False, NOT_TRAINED, "against LSTM 90.00"),
        ({"softmax": 150.0, "lstm": 160.0}, False, NOT_TRAINED, "against 5-gram 141.20"),
        ({"lstm": None}, None, TRAINING_UNKNOWN, "lstm: not there yet"),
        ({"ngram": None}, None, TRAINING_UNKNOWN, "5-gram: not there yet"),
        ({"last": None}, None, TRAINING_UNKNOWN, "the last tenth of training: not known"),
    ],
)
def test_the_gate(tmp_path, how, trained, verdict, reason):
    found = experiment(tmp_path, seven(EFFECT), **how)
    assert found.gate.trained is trained and found.verdict == verdict
    assert any(reason in one for one in found.gate.reasons), found.gate.reasons


def test_the_end_of_training_has_to_be_validated(tmp_path):
    (record,) = store(tmp_path, make_record(updates=200))
    assert last_gain(record) is None
    append_history(record.folder, {"update": 190, "split": "valid", "token_perplexity": 98.0})
    append_history(record.folder, {"update": 200, "split": "valid", "token_perplexity": 98.0})
    assert last_gain(record) is None  # nothing before the last tenth
    append_history(record.folder, {"update": 180, "split": "valid", "token_perplexity": 100.0})
    assert last_gain(record) == pytest.approx(0.02)
    before, end = ({"token_perplexity": 5.35, "nll_bits": 2.419}, {"token_perplexity": 5.28, "nll_bits": 2.402})
    append_history(record.folder, {"update": 180, "split": "valid", **before})
    append_history(record.folder, {"update": 200, "split": "valid", **end})
    assert last_gain(record) == 1 - curves.perplexity(end) / curves.perplexity(before)


@pytest.mark.parametrize("true", [4.8163, 5.2849, 5.2851, 12.404, 18.0051, 95.126])
def test_two_rounded_numbers_of_a_validation_tell_more_than_one(true):
    row = {"token_perplexity": round(true, 2), "nll_bits": round(math.log2(true), 3)}  # as fairseq logs them
    found = curves.perplexity(row)
    assert abs(found - true) <= min(0.005, 0.0005 * math.log(2) * true) * 1.001
    assert round(found, 2) == row["token_perplexity"]


def test_one_seed_that_still_learns_is_enough(tmp_path):
    experiment(tmp_path, seven(EFFECT))
    (run,) = (tmp_path / "runs" / "lm_ptb" / "softmax-default").glob("seed4-*")
    append_history(run, {"update": 200, "split": "valid", "token_perplexity": 98.9})  # the later row counts
    found = found_in(tmp_path)
    assert found.verdict == NOT_TRAINED and found.gate.last_gain == pytest.approx(0.011)


def test_below_the_scores_stands_how_they_were_made(tmp_path):
    (partial, *_) = scaled()
    said = {"lm_ptb": experiment(tmp_path, seven(0.02), more=[partial])}
    aggregates = read_aggregates(tmp_path)
    scores = parts_of(tmp_path, said)["scores-lm_ptb"]
    protocol = "unit word, context_window 0, tokens_per_sample 64, split test, checkpoint best"
    assert scores.endswith(f" |\n\nProtocol: {protocol}.\n")  # no validation is known
    assert "| Softmax | 7 |" in scores and partial["model_label"] not in scores  # one seed of seven
    (whole,) = (one for one in aggregates if one.experiment == "lm_ptb")
    assert [row.model for row in compared(whole, said).rows] == ["softmax", "dagpam_trainable"]
    assert compared(whole, {}).rows == ()  # before the primary comparison is whole there is none


def test_below_the_scores_stands_which_update_was_scored(tmp_path):
    """Of the lowest validation loss, of equals the later; the last where that is evaluated."""

    def validated(rows, *losses):
        for record in (record for row in rows for record in row.records):
            for update, bits in zip((100, 180, 200), losses, strict=True):
                append_history(record.folder, {"update": update, "split": "valid", "loss_bits": bits})

    said = {"lm_ptb": experiment(tmp_path, seven(0.02))}
    softmax, model = next(one for one in read_aggregates(tmp_path) if one.experiment == "lm_ptb").rows
    validated([softmax], 7.0, 6.5, 6.6)
    validated([model], 7.0, 6.5, 6.5)
    assert "\n\nScored checkpoints: update 180 of Softmax; update 200 of " in parts_of(tmp_path, said)["scores-lm_ptb"]
    validated([softmax, model], 7.0, 6.4, 6.5)  # the same updates once more: later rows count
    assert parts_of(tmp_path, said)["scores-lm_ptb"].endswith("\n\nScored checkpoints: update 180 of every model.\n")
    run = model.records[0]
    last = Record(run.folder, run.data | {"protocol": run["protocol"] | {"checkpoint": "last"}, "updates": 200})
    assert (scored_update(run), scored_update(last)) == (180, 200)
    assert scored_update(Record(run.folder, run.data | {"status": "diverged"})) is None
    append_history(run.folder, {"update": 220, "split": "valid", "loss_bits": None})  # which was no number
    assert scored_update(run) == 180


def test_an_arm_that_is_called_like_another_is_not_compared_before_its_own_seeds(tmp_path):
    arm = scaled()
    mine = make_record(experiment="lm_ptb", model="mine", model_label=arm[0]["model_label"], value=94.0)
    said = {"lm_ptb": experiment(tmp_path, seven(0.02), more=[*arm, mine])}
    (whole,) = (one for one in read_aggregates(tmp_path) if one.experiment == "lm_ptb")
    assert [row.model for row in compared(whole, said).rows] == ["softmax", "dagpam_trainable", "softmax_scaled"]


def test_in_translation_modules_and_layers_are_named_by_their_stack(tmp_path):
    modules = {
        "encoder.layers.0.self_attn": {"role": "encoder", "layer": 0, "negative_mass": [0.1]},
        "decoder.layers.0.encoder_attn": {"role": "cross", "layer": 0, "negative_mass": [0.1]},
        "decoder.layers.0.self_attn": {"role": "decoder", "layer": 0, "negative_mass": [0.1]},
    }
    streams = {stack: {"residual": [0.9, 0.5]} for stack in ("encoder", "decoder")}
    own = {f"{kind}/{path}": 0.5 for path in modules for kind in ("query", "lambda_pos", "lambda_neg")}
    made = [
        make_record(task="nmt", model=model, gradient_norms=own, learned_scalars=own)
        for model in ("softmax", "dagpam_trainable")
    ]
    for record in store(tmp_path, *made):
        append_history(record.folder, {"update": 1, "split": "gradient", **own})
    (found,) = read_aggregates(tmp_path)
    analyses = {record.folder: {"modules": modules, "streams": streams} for record in found.records}
    panels = painted(inside_models(found, found.row_of("dagpam_trainable", seeds=1), analyses, "some"))
    named = [[tick.get_text() for tick in axes.get_xticklabels()] for axes in panels[:5]]
    assert named == [["e1", "d1", "x1"]] * 3 + [["e0", "e1", "d0", "d1"], ["e1", "d1", "x1"]]


def test_the_main_table_has_claims_that_are_no_row_of_the_paper_behind_its_rows(tmp_path):
    experiment(tmp_path, seven(EFFECT))
    for name in ("multi30k_de_en", "iwslt14_partial_post_ln"):  # the second is secondary
        models = (("softmax", 40.0), ("dagpam_trainable", 41.0))
        store(tmp_path, *(make_record(task="nmt", experiment=name, model=model, value=own) for model, own in models))
    said = findings(tmp_path, read_aggregates(tmp_path))
    assert "iwslt14_partial_post_ln" in said
    lines = verdicts(said).rstrip().splitlines()
    means = " → ".join(f"{said['lm_ptb'].comparisons[0].means[side]:.2f}" for side in (1, 0))
    paper = "| Penn Treebank, 15 layers, perplexity | 108.26 → 106.38 (+1.74 %) |"
    assert lines[2].startswith(f"{paper} {means} | +1.74 % [")
    assert lines[-1].startswith(
        "The paper's other rows: WikiText-103, 8 layers, perplexity, 25.96 → 25.33 (+2.43 %): not"
    )
    assert "; WMT14, BLEU: not run, needs a GPU." in lines[-1]
    beside = "| Multi30k, German to English, BLEU (not in the paper) | – | – | – | not yet: 1 of 7 seeds |"
    assert lines[-3].startswith(beside)


def test_a_second_test_set_has_a_table(tmp_path):
    gains, made = [0.9, 1.1, 1.0, 1.0, 1.0, 1.0, 1.0], []
    for seed, gain in enumerate(gains, start=1):
        for model, own in (("softmax", 0.0), ("dagpam_trainable", gain)):
            record = make_record(task="nmt", experiment="multi30k_de_en", model=model, seed=seed, value=40.0 + own)
            record["metrics"] |= {"second_test_bleu": 20.0 + own, "second_test_ter": 60.0}
            made.append(record)
    store(tmp_path, *made)
    said = findings(tmp_path, read_aggregates(tmp_path))
    assert said["multi30k_de_en"].comparisons[0].gain.estimate == pytest.approx(1.0)
    parts = parts_of(tmp_path, said)
    head, _, softmax, dagpam = parts["second-test-multi30k_de_en"].splitlines()
    assert "BLEU, second test set ↑ | TER, second test set ↓" in head
    half = stats.t.ppf(0.975, 6) * np.std(gains, ddof=1) / math.sqrt(7)
    assert softmax == "| Softmax | 20.00 ± 0.00 | 60.00 ± 0.00 | – |"
    assert dagpam.endswith(f"| 21.00 ± 0.06 | 60.00 ± 0.00 | +1.00 [{1 - half:.2f}, {1 + half:.2f}] |")
    first_only = experiment(tmp_path, seven(0.02))
    assert parts_of(tmp_path, {"lm_ptb": first_only})["second-test-lm_ptb"] == ""


@pytest.mark.parametrize(("lstm", "trained"), [(39.0, None), (41.0, False)])
def test_a_reference_with_higher_bleu_is_better(lstm, trained, tmp_path):
    store(tmp_path, make_record(task="nmt", experiment="nmt", value=40.0))
    (found,) = read_aggregates(tmp_path)
    assert gate(found.baseline, {"LSTM": lstm}).trained is trained  # None: the last tenth is not known


def test_the_scores_of_a_claim_have_an_interval_over_the_test_set_where_it_has_more_than_one_unit(tmp_path):
    found = experiment(tmp_path, seven(EFFECT))
    title = "Difference over seeds and test set [95 %]"
    assert title not in parts_of(tmp_path, {"lm_ptb": found})["scores-lm_ptb"]
    aggregate = next(one for one in read_aggregates(tmp_path) if one.experiment == "lm_ptb")
    for record in aggregate.records:
        add_document_scores(record)
    parts = parts_of(tmp_path, {"lm_ptb": found})
    head, _, softmax, dagpam = parts["scores-lm_ptb"].splitlines()[:4]
    column = [title.strip() for title in head.split("|")].index(title)
    assert softmax.split("|")[column].strip() == "–"
    assert re.fullmatch(r"-\d\.\d\d \[-\d\.\d\d, -\d\.\d\d\]", dagpam.split("|")[column].strip())


def scaled():
    """Seven seeds of the control, a little better than softmax's; in its module b stands softmax."""
    noisy = [94.0 * math.exp(0.01 * math.sin(seed) + noise) for seed, noise in enumerate(NOISE, start=1)]
    return [
        make_record(
            experiment="lm_ptb",
            model="softmax_scaled",
            seed=seed,
            value=value,
            attention_modules={"a": "SoftmaxScaled", "b": "Softmax"},
        )
        for seed, value in enumerate(noisy, start=1)
    ]


def test_an_arm_is_compared_when_its_planned_seeds_are_there(tmp_path):
    found = experiment(tmp_path, seven(EFFECT), more=scaled()[:6])
    assert [one.model for one in found.comparisons] == ["dagpam_trainable"]  # the plan has seven of softmax_scaled
    store(tmp_path, *(make_record(experiment="lm_ptb", model="gated", seed=seed, value=90.0) for seed in (1, 2)))
    assert len(found_in(tmp_path).comparisons) == 1
    store(tmp_path, make_record(experiment="lm_ptb", model="gated", seed=3, status="diverged", reason="loss"))
    assert [one.model for one in found_in(tmp_path).comparisons] == ["dagpam_trainable", "gated"]


def test_what_the_weights_of_every_arm_sum_to_stands_beside_its_gain(tmp_path):
    """Two modules of two heads; the control's rows sum to a quarter where they are its own, and were looked into in all
    its seeds."""
    experiment(tmp_path, seven(EFFECT), more=scaled())
    (found,) = (one for one in read_aggregates(tmp_path) if one.experiment == "lm_ptb")
    sums = {"softmax": 1.0, "softmax_scaled": 0.25}
    for record in (record for row in found.rows if row.model in sums for record in row.finished):
        weights = {"row_sum": [sums[record["model"]], sums[record["model"]] + 0.02 * record["seed"]]}
        analysis = {"modules": {name: weights | {"negative_mass": [0.0, 0.0]} for name in ("a", "b")}}
        if record["model"] == "softmax_scaled":
            analysis["modules"]["b"] = {"row_sum": [1.0, 1.0], "negative_mass": [0.0, 0.0]}
        analysis |= {
            "config_hash": record["config_hash"],
            "streams": {"decoder": {name: [0.5] for name in inside_claim.OF_TOKENS}},
        }
        write(path_of_run(tmp_path, record), analysis)
    said = found_in(tmp_path)
    assert [(one.row_sum, one.negative) for one in said.weights] == [(pytest.approx(1.04), 0), (pytest.approx(0.29), 0)]
    (table,) = (text for path, text in rendered(tmp_path, [found]).items() if path.suffix == ".md")
    gain = next(line for line in table.splitlines() if line.endswith("| 0.29 | 0.00 |")).split(" | ")[1]
    assert gain in next(line for line in table.splitlines() if "| Softmax | 7 |" in line and gain in line)


def test_softmax_that_trains_longer_is_a_control(tmp_path):
    """Named after what it was trained with."""
    experiment(tmp_path, seven(EFFECT))
    for seed in range(1, 8):
        (longer,) = store(tmp_path, make_record(experiment="lm_ptb", model="softmax_longer", seed=seed, value=94.0))
        add_config(longer, fairseq__optimization__max_update=3387)
    own = "softmax_longer (max_update=3387)"
    names = [(one.model, one.other) for one in found_in(tmp_path).comparisons]
    assert names[1:] == [(own, "softmax"), ("dagpam_trainable", own)]
    (found,) = (one for one in read_aggregates(tmp_path) if one.experiment == "lm_ptb")
    assert found.rows[-1].label.endswith(", schedule of 3,387 updates")


def test_two_controls_are_compared_where_the_plan_says_so_when_both_have_its_seeds(tmp_path):
    """One of them with an option."""
    model, other, option = "dagpam_trainable_sum_one", "dagpam_trainable_convex_identity", "query_neg_init=identity"
    own = f"{model} ({option})"
    made = [make_record(experiment="lm_ptb", model=other, seed=seed, value=94.0) for seed in range(1, 6)]
    made += [
        make_record(experiment="lm_ptb", model=model, seed=seed, value=93.0, overrides_label=option)
        for seed in range(1, 6)
    ]
    wanted = {(own, "softmax"), ("dagpam_trainable", own), (own, other)}
    for folder, records in (("all", made), ("but_one", made[:-1])):
        found = experiment(tmp_path / folder, seven(EFFECT), more=records)
        names = {(one.model, one.other) for one in found.comparisons}
        assert {pair for pair in names if own in pair} == (wanted if folder == "all" else set())
        if folder == "all":
            (one,) = (one for one in found.comparisons if (one.model, one.other) == (own, other))
            assert one.gains == pytest.approx(dict.fromkeys(range(1, 6), math.log(94.0 / 93.0)))
            (lead,) = (one for one in found.comparisons if (one.model, one.other) == ("dagpam_trainable", other))
            table = parts_of(tmp_path / folder, {"lm_ptb": found})["controls-lm_ptb"]
            (line,) = (line for line in table.splitlines() if line.startswith(f"| {lead.labels[1]} |"))
            shown = 100 * claims.share_lower(lead.gain.estimate)
            assert line.split("|")[5].strip().startswith(f"{shown:+.2f} % [")


def test_secondary_comparisons_are_corrected_and_controls_stand_against_the_model(tmp_path):
    found = experiment(tmp_path, seven(EFFECT), more=scaled())
    names = [(one.model, one.other) for one in found.comparisons]
    assert names == [
        ("dagpam_trainable", "softmax"),
        ("softmax_scaled", "softmax"),
        ("dagpam_trainable", "softmax_scaled"),
    ]
    assert sorted(one.holm for one in found.comparisons[1:]) == pytest.approx(stepped_down(*found.comparisons[1:]))
    written = rendered(tmp_path)
    (saved,) = (json.loads(text) for path, text in written.items() if path.suffix == ".json")
    assert saved["verdict"] == SUPPORTED and saved["gate"]["trained"] is True
    assert saved["comparisons"][0]["gain"]["estimate"] == found.comparisons[0].gain.estimate
    (table,) = (text for path, text in written.items() if path.suffix == ".md")
    assert "108.26 → 106.38 (+1.74 %)" in table and "| supported | yes [0.50 %] |" in table


def test_each_p_value_stands_in_its_column(tmp_path):
    found = experiment(tmp_path, [-gain / 2 for gain in seven(EFFECT)])  # a loss: to exclude a gain is easier
    (own,) = found.comparisons
    assert own.against_effect.p_above < own.against_effect.p_value
    *_, line = parts_of(tmp_path, {"lm_ptb": found})["comparisons-lm_ptb"].splitlines()
    first, *others = (p_number(p) for p in (own.gain.p_value, own.against_effect.p_above, own.against_effect.p_value))
    *cells, of_validation = (cell.strip() for cell in line.split("|")[5:-1])
    assert cells == [first, "primary", *others] and line.split("|")[4].strip() == of_validation  # made as high above


def test_a_gain_of_validation_is_of_the_scored_checkpoints(tmp_path):
    """In translation as logged while it trained, where the lowest smoothed loss is; in language modelling as scored."""
    made = [make_record(task="nmt", experiment="multi30k_de_en", model=model, seed=seed) for model, seed in BOTH]
    for record in store(tmp_path, *made):
        rows = {100: (3.0, 9.0), 200: (2.0, 8.0 if record["model"] == "softmax" else 7.0 + record["seed"] / 10)}
        for update, (loss, perplexity) in rows.items():
            row = {"update": update, "split": "valid", "loss_bits": loss, "token_perplexity": perplexity}
            append_history(record.folder, row)
    (own,) = findings(tmp_path, read_aggregates(tmp_path))["multi30k_de_en"].comparisons
    assert own.validation.estimate == pytest.approx(np.mean([math.log(8 / (7 + seed / 10)) for seed in (1, 2)]))
    as_scored = [make_record(experiment="lm_ptb", model=model, seed=seed) for model, seed in BOTH]
    for record in as_scored:
        record["metrics"]["valid_perplexity"] = 80.0 if record["model"] == "softmax" else 70.0 + record["seed"]
    store(tmp_path, *as_scored)
    wanted = np.mean([math.log(80 / (70 + seed)) for seed in (1, 2)])
    assert found_in(tmp_path).comparisons[0].validation.estimate == pytest.approx(wanted)


def test_a_lost_seed_is_left_out_of_both_sides(tmp_path):
    gains = seven(EFFECT)
    experiment(tmp_path, gains)
    (lost,) = (path for path in (tmp_path / "runs" / "lm_ptb").glob("softmax-*/seed4-*"))
    shutil.rmtree(lost)
    store(tmp_path, make_record(experiment="lm_ptb", seed=4, status="diverged", reason="the loss is not finite"))
    again = found_in(tmp_path)
    assert again.whole and again.comparisons[0].seeds == (1, 2, 3, 5, 6, 7)
    assert again.comparisons[0].gain.estimate == pytest.approx(np.mean([*gains[:3], *gains[4:]]))
    assert again.verdict == NOT_TRAINED and again.gate.reasons[-1] == "Softmax diverged with seed 4"


def test_rank_correlations_by_hand():
    """``1 - 6 sum d^2 / (n (n^2 - 1))`` without ties; its p value counts the orders that are as far from zero."""
    scores = dict(enumerate([10.0, 20.0, 30.0, 40.0, 50.0], start=1))
    swapped = dict(enumerate([0.2, 0.1, 0.3, 0.4, 0.5], start=1))
    found = inside_claim.rank_correlation(swapped, scores)
    orders = [
        1 - 6 * sum((a - b) ** 2 for a, b in enumerate(order)) / 120 for order in itertools.permutations(range(5))
    ]
    assert found.rho == pytest.approx(0.9)
    assert found.p_value == pytest.approx(sum(abs(rho) > 0.9 - 1e-9 for rho in orders) / 120)
    falling = inside_claim.rank_correlation({seed: -value for seed, value in swapped.items()}, scores)
    assert (falling.rho, falling.p_value) == pytest.approx((-found.rho, found.p_value))
    assert inside_claim.rank_correlation(dict.fromkeys(scores, 1.0), scores) is None
    eight = {seed: float(seed) for seed in range(1, 9)}
    assert inside_claim.rank_correlation(eight, eight).p_value == pytest.approx(2 / math.factorial(8))  # all orders
    assert inside_claim.rank_correlation({seed: swapped[seed] for seed in (1, 2, 3, 4)}, scores) is None


@pytest.mark.parametrize(("task", "stacks"), [("lm", [""]), ("nmt", ["encoder's ", "decoder's "])])
def test_collapse_is_that_behind_the_last_layer_of_every_stack(task, stacks, tmp_path):
    store(tmp_path, *(make_record(task=task, model=model, seed=1) for model in ("softmax", "dagpam_trainable")))
    (found,) = read_aggregates(tmp_path)
    module = {"decoder.layers.0.self_attn": {"negative_mass": [0.1, 0.3], "row_sum": [1.0, 1.0]}}
    ends = {"encoder": 0.3, "decoder": 0.2} if task == "nmt" else {"decoder": 0.2}
    names = list(inside_claim.OF_TOKENS)
    streams = {stack: {name: [9.0, end + names.index(name)] for name in names} for stack, end in ends.items()}
    analyses = {record.folder: {"modules": module, "streams": streams} for record in found.records}
    rows = {
        row.quantity: row for row in inside_claim.inside(analyses, found, found.row_of("dagpam_trainable", seeds=1))
    }
    for place, what in enumerate(("Relative residual", "Mean cosine", "Stable rank", "Effective rank")):
        seen = [rows[f"{what} behind the {whose}last layer"].own for whose in stacks]
        assert seen == [{1: end + place} for end in ends.values()]


def test_what_goes_with_the_score_stands_beside_what_is_inside(tmp_path):
    """The longer the query's gradient, the better daGPAM's run; softmax's gradients are all equal. lambda- and the sum
    that it makes go with the score as well, so a p value is one of three."""
    made = []
    for seed in range(1, 8):
        softmax = {"gradient_norms": {"query/a": 0.2}}
        dagpam = {
            "gradient_norms": {"query/a": 0.1 * seed, "query/b": 0.3 * seed},
            "learned_scalars": {"lambda_pos/a": 0.1, "lambda_neg/a": 0.1 * seed},
        }
        made.append(make_record(experiment="lm_ptb", value=100.0, seed=seed, **softmax))
        made.append(
            make_record(experiment="lm_ptb", model="dagpam_trainable", value=99.0 - 0.1 * seed, seed=seed, **dagpam)
        )
    store(tmp_path, *made)
    rows = {row.quantity: row for row in found_in(tmp_path).inside}
    assert list(rows) == [
        "lambda+",
        "lambda-",
        "Sum of a row, 1 + lambda+ - lambda-",
        "Gradient norm of the query projections",
    ]
    gradient = rows["Gradient norm of the query projections"]
    assert gradient.own == pytest.approx({seed: 0.2 * seed for seed in range(1, 8)})
    assert gradient.difference.estimate == pytest.approx(0.2 * 4 - 0.2)
    assert gradient.with_score[0] is None
    assert gradient.with_score[1].rho == pytest.approx(1)
    assert gradient.with_score[1].p_value == pytest.approx(3 * 2 / 5040)
    total = rows["Sum of a row, 1 + lambda+ - lambda-"]
    assert total.own == pytest.approx({seed: 1.1 - 0.1 * seed for seed in range(1, 8)})
    assert total.base == {} and total.difference is None
    (table,) = (text for path, text in rendered(tmp_path).items() if path.suffix == ".md")
    assert "+1.00 (p 0.001)" in table


def test_what_goes_with_the_gain_is_ranked_over_arms(tmp_path):
    """Six arms of three seeds, the better the longer their query gradients, but for the best two, which change places:
    ``1 - 6 * 2 / (6 * 35)``. What fewer than five have is left out, and softmax is no arm."""
    arms = ("dagpam_trainable", "gated", "neutreno", "attnscale", "non", "nap")
    made = [
        make_record(experiment="lm_ptb", seed=seed, value=100.0 + seed, gradient_norms={"query/a": 1.0 * seed})
        for seed in range(1, 8)
    ]
    for place, model in enumerate(arms):
        norm = {4: 5, 5: 4}.get(place, place)
        for seed in range(1, 8 if model == "dagpam_trainable" else 4):
            looked = {"gradient_norms": {"query/a": seed + 0.1 * norm}}
            made.append(
                make_record(experiment="lm_ptb", model=model, seed=seed, value=99.0 + seed - 3 * place, **looked)
            )
    store(tmp_path, *made)
    (one,) = found_in(tmp_path).over_arms
    assert (one.quantity, one.arms) == ("Gradient norm of the query projections", 6)
    assert one.rho == pytest.approx(1 - 12 / 210)
    (table,) = (text for path, text in rendered(tmp_path).items() if path.suffix == ".md")
    assert "| Gradient norm of the query projections | 6 | +0.94 |" in table


def test_a_seed_without_a_known_last_tenth_leaves_the_gate_open(tmp_path):
    experiment(tmp_path, seven(EFFECT))
    (run,) = (tmp_path / "runs" / "lm_ptb" / "softmax-default").glob("seed4-*")
    (run / "metrics.jsonl").unlink()
    found = found_in(tmp_path)
    assert found.gate.trained is None and found.verdict == TRAINING_UNKNOWN


def test_weights_of_an_arm_wait_for_all_its_seeds(tmp_path):
    store(tmp_path, *(make_record(seed=seed) for seed in (1, 2)))
    (found,) = read_aggregates(tmp_path)
    (row,) = found.rows
    looked = {"modules": {"a": {"row_sum": [1.0], "negative_mass": [0.0]}}}
    assert inside_claim.weights({row.finished[0].folder: looked}, [row]) == ()
    assert len(inside_claim.weights({record.folder: looked for record in row.finished}, [row])) == 1
    assert inside_claim.weights({}, [replace(row, finished=())]) == ()
