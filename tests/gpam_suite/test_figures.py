"""Figures: what is drawn, captions that say what it is, and SVG bytes that do not change."""

import re
from dataclasses import replace

import matplotlib
import pytest
from matplotlib.figure import Figure
from record_factory import failed, make_record, painted, store

from gpam_suite.records.lines import append_history
from gpam_suite.report.figures import find_sweeps, plots, rows_sum
from gpam_suite.report.model_looks import APART, MODELS, look_of, look_of_model, selected
from gpam_suite.report.plotting import Plot, legend_below, logarithmic, render
from gpam_suite.stats.aggregate import read_aggregates
from gpam_suite.stats.curves import learning_curve, title


def _lambda_runs():
    """lambda_pos 0 and 1 against three lambda_neg, two seeds, and softmax."""
    runs = [make_record(seed=seed, value=30.0 + 0.1 * seed) for seed in (1, 2)]
    for pos in (0.0, 1.0):
        for neg in (0.0, 0.5, 1.0):
            options = {"lambda_pos": pos, "lambda_neg": neg, "trainable": False}
            label = f"lambda_pos={pos},lambda_neg={neg}"
            own = {"model": "dagpam", "options": options, "overrides_label": label}
            runs += [make_record(seed=seed, value=29.0 + pos - neg + 0.1 * seed, **own) for seed in (1, 2)]
    return runs


def _aggregate(results):
    (found,) = read_aggregates(results)
    return found


def test_what_differs_in_more_than_lambdas_is_no_sweep(tmp_path):
    options = [{"lambda_pos": 0.5, "lambda_neg": x} for x in (0.2, 0.5, 1.0)]
    runs = [
        make_record(model="dagpam", options=own, overrides_label=f"lambda_neg={own['lambda_neg']}") for own in options
    ]
    store(tmp_path, *runs[:2], {**runs[2], "overrides_label": "lambda_neg=1.0,dropout_on=combined"})
    assert find_sweeps(_aggregate(tmp_path).rows) == {}
    store(tmp_path, runs[2])
    assert len(find_sweeps(_aggregate(tmp_path).rows)) == 1
    learned = [{**run, "options": {**run["options"], "lambdas": "trainable"}} for run in runs]
    store(tmp_path / "learned", *learned)  # where they begin is not what they are
    assert find_sweeps(_aggregate(tmp_path / "learned").rows) == {}


@pytest.mark.parametrize(
    "options, wanted",
    [
        ({"lambda_pos": 2.0, "lambda_neg": 0.5}, 2.5),
        ({"lambda_pos": 2.0, "lambda_neg": 0.5, "lambdas": "trainable"}, None),
        ({"lambda_pos": 2.0, "lambda_neg": 0.5, "combination": "plain"}, None),
        ({"lambda_neg": 0.5}, None),
    ],
)
def test_what_rows_sum_to(tmp_path, options, wanted):
    store(tmp_path, make_record(model="dagpam", options=options))
    assert rows_sum(_aggregate(tmp_path).rows[0]) == wanted


def test_sweep_figure_draws_means_spread_and_softmax_band(tmp_path):
    runs = _lambda_runs()
    own = {key: runs[-1][key] for key in ("model", "options", "overrides_label")}
    store(tmp_path, *runs, failed(make_record(**own, seed=3)))
    found = _aggregate(tmp_path)
    assert {model: list(lines) for model, lines in find_sweeps(found.rows).items()} == {"dagpam": [0.0, 1.0]}
    (plot,) = plots(found)
    assert plot.name == "sweep-dagpam"
    for fact in ("Python documentation", "Seeds: 1, 2.", "Made by `python scripts/tabulate.py`."):
        assert fact in plot.caption
    assert "Not drawn: 1 seed that failed or diverged." in plot.caption
    axes, by_sum = painted(plot)
    lines, sums = ({one.get_label(): one.lines[0] for one in panel.containers} for panel in (axes, by_sum))
    assert lines[r"$\lambda_+$ = 1"].get_ydata() == pytest.approx([30.15, 29.65, 29.15])
    assert lines[r"$\lambda_+$ = 0"].get_xdata() == pytest.approx([0, 0.5, 1])
    band = axes.patches[0]
    low = 30.15 - 0.1 / 2**0.5  # sample deviation of 30.1 and 30.2
    assert (band.get_y(), band.get_height()) == pytest.approx((low, 2 * 0.1 / 2**0.5))
    assert axes.get_ylabel() == "Test perplexity per word\n(lower is better)" and axes.get_yscale() == "linear"
    assert sums[r"$\lambda_+$ = 1"].get_xdata() == pytest.approx([2, 1.5, 1])
    assert sums[r"$\lambda_+$ = 1"].get_ydata() == pytest.approx([30.15, 29.65, 29.15])
    store(tmp_path, make_record(**own, seed=4, value=900.0))
    assert painted(plots(_aggregate(tmp_path))[0])[0].get_yscale() == "log"  # far apart


def test_a_sweep_without_a_score_of_softmax_names_none(tmp_path):
    store(tmp_path, *[run for run in _lambda_runs() if run["model"] != "softmax"], failed(make_record(seed=1)))
    (plot,) = plots(_aggregate(tmp_path))
    assert "Dashed" not in plot.caption and not painted(plot)[0].patches


@pytest.mark.parametrize(("low", "high"), [(61, 97), (31, 420), (20, 9000)])
def test_log_axis_always_has_labels(low, high):
    axes = Figure().add_subplot()
    axes.plot([0, 1], [low, high])
    logarithmic(axes.yaxis)
    bottom, top = axes.get_ylim()
    labelled = [tick for tick in axes.yaxis.get_major_locator()() if bottom <= tick <= top]
    assert 2 <= len(labelled) <= 10


# ----------------------------------------------------------------------------------------------------- learning curves


def _history(record, rows):
    for update, perplexity in rows:
        append_history(record.folder, {"update": update, "split": "valid", "token_perplexity": perplexity})


def test_curve_is_mean_and_range_over_seeds(tmp_path):
    one, two = store(tmp_path, make_record(seed=1), make_record(seed=2))
    assert learning_curve(_aggregate(tmp_path).rows[0]) is None and plots(_aggregate(tmp_path)) == []
    _history(one, [(10, 100.0), (20, 50.0), (25, 45.0), (30, 40.0)])
    _history(two, [(10, 110.0), (20, 77.0), (20, 52.0), (30, 36.0)])  # resumed: its later row counts
    with (two.folder / "metrics.jsonl").open("a") as file:
        file.write('{"update": 40, "split": "va')
    curve = learning_curve(_aggregate(tmp_path).rows[0])
    assert curve.updates.tolist() == [10, 20, 30]  # 25 is one seed's only
    assert curve.values.tolist() == [[100.0, 50.0, 40.0], [110.0, 52.0, 36.0]]
    (plot,) = plots(_aggregate(tmp_path))
    (axes,) = painted(plot)
    assert axes.lines[0].get_ydata() == pytest.approx([105.0, 51.0, 38.0])
    assert axes.get_ylabel() == "Validation perplexity per token (log scale)"
    assert title("recall") == "Validation perplexity per answer"


def test_a_figure_names_softmax_and_dagpam_whatever_their_scores(tmp_path):
    values = {f"m{i}": 20.0 + i for i in range(9)} | {"softmax": 24.1, "dagpam": 24.2, "dagpam_trainable": 24.3}
    store(tmp_path, *[make_record(model=model, value=value) for model, value in values.items()])
    aggregate = _aggregate(tmp_path)
    shown = [row.model for (row,) in selected(aggregate, [(row,) for row in aggregate.rows])]
    assert set(shown) == {"softmax", "dagpam", "dagpam_trainable", "m0", "m1", "m7", "m8"}
    colours = {row.model: look_of(aggregate, row)["color"] for row in aggregate.rows if row.model in shown}
    assert len(set(colours.values())) == APART
    assert [colours[model] for model in MODELS[:3]] == [look_of_model(model)["color"] for model in MODELS[:3]]


@pytest.mark.parametrize("length", [15, 23, 41, 90, 200])
def test_a_legend_stays_within_its_figure(length):
    label = ("daGPAM, trainable (lambda+ = 0, lambda- = 0.5), schedule of 3,387 updates, dropout 0.1, " * 3)[
        : length - 1
    ]
    extents = []

    def paint(figure):
        axes = figure.subplots()
        for line in range(5):
            axes.plot([0, 1], [line, line], label=f"{label}{line}")
        legend_below(figure)
        extents.append((figure, figure.legends[0]))

    render(Plot("some", "", 3.0, paint))
    ((figure, legend),) = extents
    inside = legend.get_window_extent()
    assert -1 < inside.x0 < inside.x1 < figure.bbox.width + 1  # pixels


def test_svg_bytes_are_the_same_again_and_under_other_settings(tmp_path):
    store(tmp_path, *_lambda_runs())
    (plot,) = plots(_aggregate(tmp_path))
    first = render(plot)
    assert set(re.findall(rb"url\(#(\w+)\)", first)) == {b"clip0", b"clip1"}  # not named after a layout's last bits
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "other", "axes.facecolor": "red"}):
        assert render(plot) == first
    assert b"<dc:date>" not in first


def test_a_formula_on_one_of_two_lines_is_drawn_as_one(caplog):
    plot = Plot("two-lines", "", 1.0, lambda figure: figure.text(0.5, 0.5, "$\\lambda_-$\ntwo"))
    drawn = render(plot)
    assert not caplog.records, caplog.text  # matplotlib's complaint of a glyph that it has not
    assert drawn != render(replace(plot, draw=lambda figure: figure.text(0.5, 0.5, "$\\lambda_-\ntwo$")))
