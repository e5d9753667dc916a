"""The report: honest sentences, links that lead somewhere, nothing that is not in the records."""

import re

import pytest
from record_factory import add_document_scores, add_history, failed, make_record, store

from gpam.errors import UsageError
from gpam_suite.aggregate import read_aggregates
from gpam_suite.reading import reading
from gpam_suite.report import build, write_report


def _reading(results):
    (found,) = read_aggregates(results)
    return reading(found)


def _pairs(dagpam, softmax=(30.0, 30.2, 30.4), **fields):
    return [
        make_record(model=model, seed=seed, value=value, **fields)
        for model, values in (("softmax", softmax), ("dagpam", dagpam))
        for seed, value in enumerate(values, start=1)
    ]


def test_interval_that_holds_zero_shows_no_difference(tmp_path):
    for record in store(tmp_path, *_pairs((29.0, 30.9, 28.8))):
        add_document_scores(record)
    (sentence,) = _reading(tmp_path)
    start = "**daGPAM**: difference to Softmax -0.63 perplexity per word, 95 % interval over seeds ["
    assert sentence.startswith(start)
    assert "holds zero: no difference shown at this scale" in sentence
    assert "over the documents of the test set the interval is [" in sentence
    assert "better" not in sentence


@pytest.mark.parametrize(
    ("task", "dagpam", "verdict"),
    [
        ("lm", (29.0, 29.2, 29.5), "better"),
        ("lm", (31.0, 31.2, 31.5), "worse"),
        ("nmt", (31.0, 31.2, 31.5), "better"),
        ("nmt", (29.0, 29.2, 29.5), "worse"),
    ],
)
def test_interval_that_excludes_zero_goes_by_the_metrics_direction(tmp_path, task, dagpam, verdict):
    store(tmp_path, *_pairs(dagpam, task=task))
    (sentence,) = _reading(tmp_path)
    assert f"excludes zero: {verdict} than Softmax in this setting" in sentence
    assert "no test over the test set" in sentence


def test_one_seed_claims_nothing(tmp_path):
    store(tmp_path, *_pairs((25.0,), softmax=(30.0,)))
    sentence, warning = _reading(tmp_path)
    assert "perplexity per word, no interval: one seed; no test" in sentence
    assert "better" not in sentence
    assert warning.startswith("**Warning.** One seed")


def test_beside_intervals_one_seed_is_a_warning_alone(tmp_path):
    alone = make_record(model="gated", value=20.0)
    store(tmp_path, *_pairs((29.0, 29.2, 29.5)), alone)
    sentence, warning = _reading(tmp_path)
    assert sentence.startswith("**daGPAM**") and warning.startswith("**Warning.** gated: one seed")


def test_too_few_seeds_are_named(tmp_path):
    store(tmp_path, *_pairs((29.0, 29.1)))
    *_, warning = _reading(tmp_path)
    assert warning == "**Warning.** daGPAM: 2 seeds: too few for a useful interval; 3 are the least, five are better."


def test_many_models_of_one_seed_are_counted(tmp_path):
    alone = [make_record(model=name, value=20.0) for name in ("gated", "nap", "cog", "coda", "sigmoid")]
    store(tmp_path, *_pairs((29.0, 29.2, 29.5)), *alone)
    _, warning = _reading(tmp_path)
    assert warning.startswith("**Warning.** 5 of the 7 models (column Seeds): one seed: the spread")


def test_lost_seeds_are_told(tmp_path):
    runs = _pairs((29.0, 29.1, 29.2))
    store(tmp_path, *runs[:5], failed(runs[5]), failed(make_record(model="nap")))
    sentences = " ".join(_reading(tmp_path))
    assert "1 seed of 3 failed or diverged, not in these numbers." in sentences
    assert "**NAP**: no comparison, no seed of NAP finished." in sentences


@pytest.mark.parametrize("place, lost", [(5, "better"), (2, "worse")])
def test_a_side_that_lost_a_seed_is_not_called_better(tmp_path, place, lost):
    turn = -1 if lost == "better" else 1
    runs = _pairs([value + turn + 0.01 * seed for seed, value in enumerate((30.0, 30.0, 30.0))], (30.0, 30.0, 30.0))
    store(tmp_path, *runs[:place], failed(runs[place]), *runs[place + 1 :])
    sentence, *_ = _reading(tmp_path)
    assert "excludes zero, but the better side lost a seed: no difference shown; " in sentence


def test_several_comparisons_carry_their_caution(tmp_path):
    nap = [make_record(model="nap", seed=seed, value=40.0 + seed) for seed in (1, 2, 3)]
    store(tmp_path, *_pairs((29.0, 29.1, 29.2)), *nap)
    assert any(sentence.startswith("These 2 intervals over seeds are not corrected") for sentence in _reading(tmp_path))


def test_nothing_to_compare(tmp_path):
    store(tmp_path / "a", make_record(model="dagpam"))
    assert "Softmax was not run" in _reading(tmp_path / "a")[0]
    store(tmp_path / "b", make_record())
    assert _reading(tmp_path / "b") == ["Only Softmax was run: there is nothing to compare."]


def _two_experiments(results):
    stored = store(
        results,
        *_pairs((29.0, 29.1, 29.2), experiment="lm/python docs"),
        *_pairs((29.0, 29.1, 29.2), task="nmt", experiment="small_nmt"),
    )
    for record in stored:
        add_history(record, record.headline)
        if record["task"] == "lm":
            add_document_scores(record)


def test_build_writes_everything_and_every_link_leads_to_a_file(tmp_path):
    _two_experiments(tmp_path)
    written = build(tmp_path)
    assert len(written) == len(set(written)) == 2 * 3 + 2 * 2 * 2 + 1  # tables, two figures twice, the report
    assert all(path.is_file() for path in written)
    page = (tmp_path / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", page)
    files = [target for target in targets if not target.startswith("#")]
    assert len(files) == 2 * (3 + 2)
    assert all((tmp_path / target).is_file() for target in files)
    headings = {
        re.sub(r"[^\w -]", "", line[3:].lower()).replace(" ", "-") for line in page.splitlines() if line[:3] == "## "
    }
    assert {target[1:] for target in targets if target.startswith("#")} <= headings
    assert page.index("lm/python docs") < page.index("small_nmt")
    assert "108.26" in page.split("## What the paper reports")[1]


def test_report_again_is_byte_identical(tmp_path):
    _two_experiments(tmp_path)
    kept = {path: path.read_bytes() for path in build(tmp_path) if path.suffix != ".png"}
    assert {path: path.read_bytes() for path in build(tmp_path) if path.suffix != ".png"} == kept
    assert write_report(tmp_path).read_bytes() == kept[tmp_path / "README.md"]
    assert str(tmp_path) not in kept[tmp_path / "README.md"].decode()


def test_one_experiment_is_built_and_the_report_still_holds_all(tmp_path):
    _two_experiments(tmp_path)
    names = {path.name for path in build(tmp_path, "small_nmt")}
    assert "small_nmt.md" in names
    assert "lm_python_docs.md" not in names
    assert "lm/python docs" in (tmp_path / "README.md").read_text()
    with pytest.raises(UsageError, match="did you mean 'small_nmt'"):
        build(tmp_path, "smal_nmt")


def test_no_runs_yet(tmp_path):
    assert build(tmp_path) == [tmp_path / "README.md"]
    assert "No run has been recorded yet." in (tmp_path / "README.md").read_text()


def test_a_refusal_writes_nothing(tmp_path):
    _two_experiments(tmp_path)
    store(tmp_path, make_record(experiment="zz"), make_record(experiment="zz", config_hash="00000001"))
    with pytest.raises(UsageError, match="run twice"):
        build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_what_did_not_go_to_plan_is_on_the_page(tmp_path):
    _two_experiments(tmp_path)
    assert "What did not go to plan" not in write_report(tmp_path).read_text()
    (tmp_path / "deviations.md").write_text("A machine was lost.\n")
    assert "## What did not go to plan\n\nA machine was lost.\n" in write_report(tmp_path).read_text()
