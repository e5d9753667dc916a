"""What the page says of perturbed input, by made-up numbers."""

import dataclasses
import re

import pytest
from record_factory import make_record
from record_factory import store as store_records

from gpam_suite.records import store
from gpam_suite.records.folder import read_records
from gpam_suite.report.page import build
from gpam_suite.report.perturbed_section import plot, table, title
from gpam_suite.stats.aggregate import read_aggregates
from gpam_suite.stats.perturbed import find

# ------------------------------------------------------------------------------------------- made-up numbers, and pages

SETTINGS = {"kinds": ["characters", "dropped"], "rates": [0.1, 0.2], "seed": 1, "texts": 200}
CLEAN = {"softmax": 40.0, "dagpam": 50.0}
LAST = {("softmax", "characters"): 0.8, ("dagpam", "characters"): 0.9, ("softmax", "dropped"): 0.5}
LAST["dagpam", "dropped"] = 0.5


def _kind(record, kind):
    noise = 0.01 * (record["seed"] - 2) if (record["model"], kind) == ("dagpam", "characters") else 0.0
    clean, lost = CLEAN[record["model"]], 1 - LAST[record["model"], kind] - noise
    scores = {rate: clean * (1 - lost * rate / max(SETTINGS["rates"])) for rate in SETTINGS["rates"]}
    return [{"rate": rate, "changed": rate / 2, "bleu": bleu, "chrf": bleu + 10} for rate, bleu in scores.items()]


@pytest.fixture
def made_up(tmp_path):
    """Three seeds of softmax and daGPAM; with characters edited daGPAM keeps 0.9 -+ 0.01 of its BLEU, softmax 0.8."""
    runs = [make_record(task="nmt", experiment="e", model=model, seed=seed) for model in CLEAN for seed in (1, 2, 3)]
    for record in store_records(tmp_path, *runs):
        clean = {"bleu": CLEAN[record["model"]], "chrf": CLEAN[record["model"]] + 10}
        found = {"kinds": {kind: _kind(record, kind) for kind in SETTINGS["kinds"]}, "clean": clean, "texts": 200}
        store.write(
            store.path_of_run(tmp_path, record, store.PERTURBED), {**store.facts(record), "settings": SETTINGS, **found}
        )
    return tmp_path


def _page(results):
    (aggregate,) = read_aggregates(results)
    found = find(results, aggregate)
    return "\n".join([plot(found).caption, table(found)])


def test_the_table_says_what_the_numbers_say(made_up):
    page = _page(made_up)
    assert "| Model | Perturbation | Seeds | BLEU, clean | BLEU at 20 % | Change | Change of chrF |" in page
    assert "| daGPAM | Character noise | 3 | 50.00 ± 0.00 | 45.00 ± 0.50 | -10.00 % | -8.33 % |" in page
    assert "| Softmax | Dropped words | 3 | 40.00 ± 0.00 | 20.00 ± 0.00 | -50.00 % | -40.00 % | – | – |" in page
    # 10 points, sd 1 over three seeds: t(0.975, 2) / sqrt(3) = 2.484
    assert "| +10.00 [7.52, 12.48] | p = 0.007 |" in page
    assert "Differences to Softmax: paired t over 3 seeds, no interval: no spread between seeds." in page
    assert "words that differ at 20 %: character noise 10 %, dropped words 10 %." in page
    assert "a fall is a loss" in page
    for word in ("on 200 sentences", "Seeds: 1, 2, 3", "Made by `python scripts/perturb.py`"):
        assert word in page


def test_a_rate_is_said_as_it_is(made_up, monkeypatch):
    monkeypatch.setitem(SETTINGS, "rates", [0.1, 0.125])
    for record in read_records(made_up):
        path = store.path_of_run(made_up, record, store.PERTURBED)
        kinds = {kind: _kind(record, kind) for kind in SETTINGS["kinds"]}
        store.write(path, {**store.read(path), "settings": SETTINGS, "kinds": kinds})
    page = _page(made_up)
    assert "| BLEU at 12.5 % |" in page and "words that differ at 12.5 %" in page and "score to that at 12.5 %" in page


def test_other_settings_and_other_configurations_are_left_out(made_up):
    paths = sorted((made_up / store.PERTURBED).rglob("*.json"))
    found = store.read(paths[0])  # of daGPAM
    store.write(paths[0], {**found, "settings": {**SETTINGS, "seed": 9}})
    page = _page(made_up)
    assert "1 run with other settings left out" in page
    assert "| daGPAM | Dropped words | 2 |" in page and "paired t over 2 seeds" in page
    store.write(paths[0], {**found, "config_hash": "00000000"})
    page = _page(made_up)
    assert "left out" not in page and "| daGPAM | Dropped words | 2 |" in page


def test_what_was_run_and_not_read_counts_in_the_correction(made_up):
    lost = [make_record(task="nmt", experiment="e", model="nap", seed=seed) for seed in (1, 2, 3)]
    first, *_ = store_records(made_up, *lost)
    of_dagpam = store.read(next((made_up / store.PERTURBED).rglob("dagpam*/*.json")))
    store.write(store.path_of_run(made_up, first, store.PERTURBED), of_dagpam | store.facts(first))
    assert "| +10.00 [7.52, 12.48] | p = 0.013 |" in _page(made_up)


def test_a_clean_score_of_zero_has_no_relative_one(made_up):
    for path in (made_up / store.PERTURBED).rglob("*.json"):
        store.write(path, {**store.read(path), "clean": {"bleu": 0.0, "chrf": 1.0}})
    (aggregate,) = read_aggregates(made_up)
    assert find(made_up, aggregate).differences == {}
    assert re.search(r"\| Softmax \| Dropped words \| 3 \| 0.00 ± 0.00 \| 20.00 ± 0.00 \| – \|", _page(made_up))
    assert build(made_up)


def test_what_is_not_to_be_tested_yet_has_no_difference(made_up):
    (aggregate,) = read_aggregates(made_up)
    row = aggregate.row_of("dagpam")
    waiting = find(made_up, dataclasses.replace(aggregate, untested=frozenset({row.key})))
    assert waiting.differences == {} and "| -10.00 % | -8.33 % | – | – |" in table(waiting)


def test_one_seed_has_no_interval(made_up):
    for path in (made_up / store.PERTURBED).rglob("seed[23]*.json"):
        path.unlink()
    page = _page(made_up)
    assert "no interval: one seed" in page and "| +9.00 | – |" in page


def test_characters_are_no_sub_words(made_up):
    (aggregate,) = read_aggregates(made_up)
    assert title("adversarial", aggregate) == "Adversarial sub-words"
    for record in aggregate.records:
        record.data["protocol"]["unit"] = "character"
    assert title("adversarial", aggregate) == "Adversarial characters"
    assert title("dropped", aggregate) == "Dropped words"
