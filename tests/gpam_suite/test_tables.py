"""Tables: what stands in them, what is refused, and that the same records give the same bytes."""

import csv
import io
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_factory import PROTOCOLS, add_config, add_document_scores, add_history, failed, make_record, store, tabulate

from gpam.errors import UsageError
from gpam_suite.common.tasks import TASKS
from gpam_suite.records.folder import read_records
from gpam_suite.records.settings import BATCH, table_settings
from gpam_suite.report.page import build
from gpam_suite.report.tables import csv_table, table
from gpam_suite.stats.aggregate import aggregate, read_aggregates


def _runs(**fields):
    """Two models, three seeds, in the order in which they would have been started: daGPAM first."""
    moment = iter(range(10, 60))
    return [
        make_record(
            model=model,
            seed=seed,
            value=value + 0.1 * seed * spread,
            started=f"2026-01-02T03:04:{next(moment)}Z",
            **fields,
        )
        for model, value, spread in (("dagpam", 29.0, 2), ("nap", 80.0, 3), ("softmax", 30.0, 1))
        for seed in (1, 2, 3)
    ]


def _table(results):
    (found,) = read_aggregates(results)
    head, cells = table(found)
    return [dict(zip(head, line, strict=True)) for line in cells]


def _csv(results):
    (found,) = read_aggregates(results)
    return list(csv.DictReader(io.StringIO(csv_table(found))))


def test_rows_by_hand(tmp_path):
    for record in store(tmp_path, *_runs()):
        add_document_scores(record)
    softmax, dagpam, nap = _table(tmp_path)
    assert [softmax["Model"], dagpam["Model"], nap["Model"]] == ["Softmax", "daGPAM", "NAP"]  # softmax first
    assert softmax["Test perplexity per word ↓"] == "30.20 ± 0.10"
    assert dagpam["Test perplexity per word ↓"] == "29.40 ± 0.20"
    # differences by seed -0.9, -0.8, -0.7: mean -0.8, sd 0.1, half width 4.302653 * 0.1 / sqrt(3) = 0.2484
    assert dagpam["Difference over seeds [95 %]"] == "-0.80 [-1.05, -0.55]"
    assert dagpam["Difference on the test set [95 %]"].startswith("-0.80 [")
    assert dagpam["Difference on the test set [95 %]"].endswith("p < 0.001")
    assert dagpam["Parameters"] == "100,256"
    assert dagpam["Extra parameters"] == "+0.26 %"
    assert dagpam["Training speed ×"] == "0.78"  # 7000 / 9000
    assert dagpam["Peak memory ×"] == "1.10"
    assert softmax["Difference over seeds [95 %]"] == "–"
    row = _csv(tmp_path)[1]
    assert float(row["difference"]) == pytest.approx(-0.8)
    assert float(row["difference_low"]) == pytest.approx(-1.04841, abs=1e-5)
    assert row["seeds"] == "1 2 3"


def test_translation_has_chrf_and_ter_where_they_were_measured(tmp_path):
    scores = [{"test_bleu": 28.0 + seed, "test_chrf": 48.0 + seed} for seed in (1, 2)]
    scores[0]["test_ter"] = 61.5
    store(tmp_path, *[make_record(task="nmt", seed=seed, metrics=own) for seed, own in enumerate(scores, start=1)])
    (row,) = _table(tmp_path)
    assert row["Test BLEU ↑"] == "29.50 ± 0.71"
    assert row["Test chrF ↑"] == "49.50 ± 0.71"
    assert row["Test TER ↓"] == "61.50"


def test_failed_and_diverged_seeds_are_counted_and_shown(tmp_path):
    records = _runs()
    records[1] = failed(records[1])
    records[3:6] = [failed(record, "failed", "out of memory") for record in records[3:6]]
    store(tmp_path, *records)
    table = {line["Model"]: line for line in _table(tmp_path)}
    assert table["daGPAM"]["Seeds"] == "2 of 3"
    assert table["daGPAM, seed 2"]["Status"] == "diverged: loss is NaN at update 120"
    assert table["daGPAM"]["Test perplexity per word ↓"] == "29.40 ± 0.28"  # of seeds 1 and 3
    assert table["NAP"]["Seeds"] == "0 of 3"
    assert table["NAP"]["Test perplexity per word ↓"] == "–"
    assert table["NAP, seed 3"]["Status"] == "failed: out of memory"
    assert [line["status"] for line in _csv(tmp_path)].count("failed") == 3
    assert "paired t over 2 seeds" in tabulate(tmp_path)[0].read_text()


def test_a_lost_run_may_not_know_its_protocol(tmp_path):
    lost = failed(make_record(model="dagpam", protocol={}, data={"checksum": "?", "name": "x", "counts": {}}))
    store(tmp_path, make_record(), lost)
    assert len(_table(tmp_path)) == 3


def test_one_seed_has_no_spread_and_a_warning(tmp_path):
    store(tmp_path, make_record(), make_record(model="dagpam", value=29.0))
    _, dagpam = _table(tmp_path)
    assert dagpam["Test perplexity per word ↓"] == "29.00"
    assert dagpam["Difference over seeds [95 %]"] == "-1.00"
    assert "Warning: too few seeds" in tabulate(tmp_path)[0].read_text()


@pytest.mark.parametrize("label", ["attention=sigmoid", "control=more_heads"])
def test_without_softmax_there_is_no_difference(tmp_path, label):
    """Under another attention, or as a control, it is none."""
    store(tmp_path, make_record(model="dagpam"), make_record(overrides_label=label))
    for row in _table(tmp_path):
        assert row["Difference over seeds [95 %]"] == row["Extra parameters"] == row["Training speed ×"] == "–"
    assert "Softmax was not run" in tabulate(tmp_path)[0].read_text()


@pytest.mark.parametrize("of", ["model", "seed"])
def test_speed_is_not_compared_across_machines(tmp_path, of):
    """Neither where each model has its own, nor where both ran on the same two."""
    runs = [make_record(model=model, seed=seed) for model in ("softmax", "dagpam") for seed in (1, 2)]
    store(tmp_path, *(run | {"hardware": {"device": str(run[of])}} for run in runs))
    _, dagpam = _table(tmp_path)
    assert dagpam["Training speed ×"] == dagpam["Peak memory ×"] == "–"
    assert dagpam["Extra parameters"] == "+0.26 %"


def test_some_kilobytes_of_memory_are_no_other_machine(tmp_path):
    runs = [make_record(model=model) for model in ("softmax", "dagpam")]
    sizes = (25276502016, 25276510208)
    store(tmp_path, *(run | {"hardware": {"memory_bytes": size}} for run, size in zip(runs, sizes, strict=True)))
    _, dagpam = _table(tmp_path)
    assert dagpam["Peak memory ×"] == "1.10"


def test_default_softmax_is_the_baseline_among_several(tmp_path):
    heads = make_record(overrides_label="heads=16", options={"heads": 16}, started="2025-01-01T00:00:00Z")
    store(tmp_path, make_record(model="dagpam"), heads, make_record())
    assert [line["Model"] for line in _table(tmp_path)] == ["Softmax", "Softmax (heads=16)", "daGPAM"]


def test_where_lambdas_vary_each_row_names_both(tmp_path):
    options = {"dropout_on": "combined", "lambda_neg": 0.5, "lambda_pos": 0.0}
    changed = make_record(model="dagpam", overrides_label="dropout_on=combined,lambda_pos=0.0", options=options)
    store(tmp_path, make_record(), make_record(model="dagpam", options={"lambda_neg": 0.5, "lambda_pos": 0.5}), changed)
    labels = [line["Model"] for line in _table(tmp_path)]
    assert labels[1:] == [
        "daGPAM (lambda+ = 0.5, lambda- = 0.5)",
        "daGPAM (lambda+ = 0, lambda- = 0.5, one mask of dropout)",
    ]


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"protocol": {**PROTOCOLS["lm"], "context_window": 32}}, r"protocol\.context_window is 0 in .* but 32 in"),
        ({"protocol": {**PROTOCOLS["lm"], "stride": 8}}, r"protocol\.stride"),
        ({"recipe": "other"}, r'recipe is "python_docs" in .* but "other" in'),
        ({"dataset": "wikitext2"}, "dataset is"),
        ({"task": "nmt"}, "task is"),
        ({"data": {"checksum": "sha256:0000", "name": "python_docs", "counts": {}}}, "data checksum is"),
    ],
)
def test_mixed_runs_are_refused_and_both_named(tmp_path, change, named):
    *_, stray = store(tmp_path, *_runs(), make_record(model="coda", **change))
    with pytest.raises(UsageError, match=named) as error:
        tabulate(tmp_path)
    assert str(stray.folder) in str(error.value)
    assert "softmax" in str(error.value) or "dagpam" in str(error.value)
    assert not (tmp_path / "tables").exists()


@pytest.mark.parametrize("lost", [False, True])
def test_repeated_seed_is_refused(tmp_path, lost):
    again = make_record(config_hash="00000001", value=29.0)
    one, other = store(tmp_path, make_record(), failed(again) if lost else again)
    with pytest.raises(UsageError, match=r"Seed 1 of softmax \(default\) was run twice") as error:
        tabulate(tmp_path)
    assert str(one.folder) in str(error.value)
    assert str(other.folder) in str(error.value)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"fairseq__common__bf16": True}, r"fairseq\.common\.bf16 is null in .* but true in"),
        ({"gpu__precision": "bf16"}, r"gpu\.precision"),
        ({"fairseq__dataset__train_subset": "test"}, r"fairseq\.dataset\.train_subset"),
        ({"fairseq__checkpoint__restore_file": "other/checkpoint_best.pt"}, r"fairseq\.checkpoint\.restore_file"),
        ({"evaluation__beam": 1}, r"evaluation\.beam"),
        ({"a_key__nobody_thought_of": 1}, r"a_key\.nobody_thought_of is null in .* but 1 in"),
    ],
)
def test_settings_that_do_not_compare_are_refused(tmp_path, change, named):
    *_, stray = store(tmp_path, *_runs(), make_record(model="coda"))
    add_config(stray, **change)
    with pytest.raises(UsageError, match=named) as error:
        tabulate(tmp_path)
    assert str(stray.folder) in str(error.value)


def test_machine_may_differ_and_controls_may_have_another_size(tmp_path):
    _, other = store(tmp_path, make_record(), make_record(model="wide", world_size=4, gpu="multi4"))
    sliced = {"fairseq__optimization__update_freq": [4, 4], "fairseq__dataset__max_tokens": 512}  # for 4 devices
    add_config(other, fairseq__model__decoder_layers=8, **sliced)
    assert len(_table(tmp_path)) == 2


def test_a_batch_cut_otherwise_counts_as_what_fairseq_takes_of_it():
    """Eight samples of 256 tokens or five times two, of one length; of sentences the limit itself."""
    dataset, task = {"max_tokens": 2560}, {"tokens_per_sample": 256}
    halves = {"dataset": {"max_tokens": 1280}, "optimization": {"update_freq": [2]}}
    for own, tokens in (({"dataset": dataset}, 2560), (halves, 2560)):
        assert table_settings({"fairseq": own})[BATCH] == tokens
    for own, tokens in (({"dataset": dataset}, 2048), (halves, 2560)):
        assert table_settings({"fairseq": {**own, "task": task}})[BATCH] == tokens


@pytest.mark.parametrize(("decay", "kept"), [(100, False), (90, True)])
def test_a_schedule_that_ends_elsewhere_than_training_is_a_setting(decay, kept):
    own = {"lr_scheduler": {"total_num_update": decay}, "optimization": {"max_update": 100}}
    assert ("fairseq.lr_scheduler.total_num_update" in table_settings({"fairseq": own})) == kept


@pytest.mark.parametrize("task", sorted(TASKS))
def test_the_batches_of_an_evaluation_must_be_equal_where_hypotheses_depend_on_them(task):
    kept = table_settings({"dataset": {"task": task}, "evaluation": {"max_tokens": 64}})
    assert ("evaluation.max_tokens" in kept) == (task == "nmt")


@pytest.mark.parametrize(
    ("seed", "change", "label"),
    [
        (1, {"fairseq__optimization__lr": [0.01]}, "Softmax, lr 0.01"),
        (4, {"fairseq__optimization__max_update": 60}, "Softmax, schedule of 60 updates"),
        (4, {"fairseq__optimization__max_update": None}, "Softmax, max_update not set"),
        (1, {"fairseq__dataset__max_tokens": 4096}, "Softmax, tokens per update 8192"),
        (4, {"fairseq__model__decoder_layers": 8}, "Softmax, decoder_layers 8"),
        (
            1,  # batches that grow from epoch to epoch
            {"fairseq__optimization__update_freq": [2, 4]},
            "Softmax, max_tokens 1024, update_freq [2, 4], tokens per update not set",
        ),
    ],
)
def test_another_training_is_a_row_named_after_what_differs(tmp_path, seed, change, label):
    *_, stray = store(tmp_path, *_runs(), make_record(seed=seed, config_hash="00000001", value=20.0))
    add_config(stray, **change)
    table = {line["Model"]: line for line in _table(tmp_path)}
    assert set(table) == {"Softmax", "daGPAM", "NAP", label}
    assert table["Softmax"]["Test perplexity per word ↓"] == "30.20 ± 0.10"
    assert table[label]["Test perplexity per word ↓"] == "20.00"
    page = tabulate(tmp_path)[0].read_text()
    assert "A row whose settings differ from the baseline's is named after them; elsewhere: " in page


def test_a_model_is_compared_with_softmax_trained_as_it_was(tmp_path):
    """Whichever of softmax's trainings has more seeds."""
    slow = [
        make_record(model=model, seed=seed, value=value + 0.1 * seed, config_hash="00000001")
        for model, value, seeds in (("softmax", 34.0, 4), ("dagpam", 33.0, 3))
        for seed in range(1, seeds + 1)
    ]
    for record in store(tmp_path, *_runs(), *slow)[-len(slow) :]:
        add_config(record, fairseq__optimization__lr=[0.001])
    lines = {line["Model"]: line["Difference over seeds [95 %]"].split()[0] for line in _table(tmp_path)}
    assert lines == {
        "Softmax": "–",
        "daGPAM": "-1.00",
        "Softmax, lr 0.002": "-4.00",
        "daGPAM, lr 0.002": "-0.80",
        "NAP, lr 0.002": "+50.40",
    }
    page = tabulate(tmp_path)[0].read_text()
    assert "Differences are to Softmax (of models that were trained as Softmax, lr 0.002, to that); over" in page
    assert "The difference of daGPAM; Softmax, lr 0.002 is over the seeds that both sides have, so it is not" in page


@pytest.mark.parametrize(
    "key, value",
    [
        ("model__dropout", 0.3),
        ("model__attention_dropout", 0.3),
        ("criterion__label_smoothing", 0.2),
        ("optimizer__adam_betas", "(0.9, 0.999)"),
        ("lr_scheduler__warmup_updates", 7),
    ],
)
def test_no_part_of_a_training_differs_without_a_word(tmp_path, key, value):
    *_, stray = store(tmp_path, *_runs(), make_record(seed=4))
    add_config(stray, **{f"fairseq__{key}": value})
    assert any(key.rpartition("__")[2] in line["Model"] for line in _table(tmp_path))


@pytest.mark.parametrize(
    ("fields", "changes", "named"),
    [
        ({"options": {"lambda_neg": 0.5}}, {}, "lambda_neg"),
        ({"model_label": "daGPAM"}, {}, r"label \(Softmax and daGPAM\)"),
        ({}, {"model__attention": "sigmoid"}, r"attention \(softmax and sigmoid\)"),
    ],
)
def test_seeds_of_what_is_not_one_model_are_refused(tmp_path, fields, changes, named):
    usual = {"options": {"lambda_neg": 1.0}}
    one, other = store(tmp_path, make_record(**usual), make_record(seed=2, **{**usual, **fields}))
    add_config(one, model__attention="softmax")
    add_config(other, **{"model__attention": "softmax", **changes})
    with pytest.raises(UsageError, match=f"options differ in {named}"):
        tabulate(tmp_path)


def test_options_that_no_configuration_names_are_compared_too(tmp_path):
    """A mechanism's default that has become another."""
    given = [make_record(seed=seed, options={"lambda_neg": value}) for seed, value in ((1, 1.0), (2, 0.5))]
    for record in store(tmp_path, *given):
        add_config(record, model={"name": "softmax"})
    with pytest.raises(UsageError, match="options differ in lambda_neg"):
        tabulate(tmp_path)


@pytest.mark.parametrize(("text", "said"), [("a: [1", "expected"), ("- a list", "no mapping"), (None, "not there")])
def test_a_configuration_that_is_broken_or_gone_is_named(tmp_path, text, said):
    (record,) = store(tmp_path, make_record())
    path = record.folder / "config.yaml"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UsageError, match=rf"config\.yaml cannot be read \(.*{said}"):
        tabulate(tmp_path)


def test_what_is_no_table_is_left_out_and_its_old_table_goes(tmp_path, caplog):
    other = make_record(experiment="small", value=31.0)
    store(tmp_path, make_record(), make_record(experiment="z"), make_record(experiment="z-more"), other)
    for record in read_records(tmp_path):
        add_history(record, 30.0)
    build(tmp_path)
    stale = [*(tmp_path / "tables").glob("z.*"), tmp_path / "figures" / "z-learning-curves.svg"]
    assert len(stale) == 3 and stale[-1].exists()
    kept = {path.name for path in (tmp_path / "figures").iterdir()} - {path.name for path in stale}
    of_a_claim = [tmp_path / "comparisons" / "z.json", tmp_path / "tables" / "z-claim.md"]
    (mine := tmp_path / "figures" / "mine.svg").touch()
    for path in of_a_claim:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    with (tmp_path / ".written").open("a") as written:
        written.writelines(f"{path.relative_to(tmp_path)}\n" for path in of_a_claim)
    store(tmp_path, make_record(experiment="z", config_hash="00000001"))
    build(tmp_path)
    assert not any(path.exists() for path in stale + of_a_claim) and mine.exists()
    assert {path.name for path in (tmp_path / "figures").iterdir()} >= kept
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == {"small", "small_lm", "z-more"}
    assert "z is left out: Seed 1 of softmax (default) was run twice" in caplog.text
    assert "z is left out. Seed 1 of softmax (default) was run twice" in (tmp_path / "README.md").read_text()
    for record in store(tmp_path, *(make_record(experiment="changed", model=m) for m in ("softmax", "dagpam"))):
        add_document_scores(record)
    scores = record.folder / "scores.jsonl"
    scores.write_text("".join(scores.read_text().splitlines(keepends=True)[1:]))
    assert "changed is left out. " in next(path for path in build(tmp_path) if path.name == "README.md").read_text()


# --------------------------------------------------------------------------------------------------------------- bytes


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    results = tmp_path_factory.mktemp("stored")
    records = _runs()
    records[4] = failed(records[4])
    for record in store(results, *records):
        if record["status"] == "finished":
            add_document_scores(record)
    return results


@settings(max_examples=3)
@given(st.data())
def test_order_of_the_records_does_not_matter(stored, data):
    records = read_records(stored)
    shuffled = data.draw(st.permutations(records))
    assert csv_table(aggregate(shuffled)) == csv_table(aggregate(records))


def test_regeneration_is_byte_identical_wherever_the_results_lie(stored, tmp_path):
    first = {path.name: path.read_bytes() for path in tabulate(stored)}
    shutil.copytree(stored / "runs", tmp_path / "elsewhere" / "runs")
    second = {path.name: path.read_bytes() for path in tabulate(tmp_path / "elsewhere")}
    assert first == second
    assert set(first) == {"small_lm.md", "small_lm.csv"}
    assert not any(str(stored).encode() in content for content in first.values())


def test_page_says_what_it_is_made_of(tmp_path):
    store(tmp_path, *(make_record(seed=seed, hardware={"cores": 2 * seed, "gpu": None}) for seed in (1, 2)))
    page = tabulate(tmp_path)[0].read_text()
    assert "Hardware: gpu config cpu; cores 2, 4.\n" in page
    for fact in ("5f2c", "context_window 0", "Seeds: 1, 2; updates: 200.", "torch 2.6.0", "0000000", "train.py"):
        assert fact in page


def test_text_from_records_cannot_break_a_table(tmp_path):
    reason = "loss | 50% of_it\nis #1 & {NaN}"
    store(tmp_path, failed(make_record(), reason=reason), make_record(seed=2))
    page, table = (path.read_text() for path in tabulate(tmp_path))
    assert r"diverged: loss \| 50% of_it is #1 & {NaN} |" in page
    assert next(line for line in csv.DictReader(io.StringIO(table)) if line["reason"])["reason"] == reason


def test_speed_on_other_machines_is_no_ratio(tmp_path):
    store(tmp_path, make_record(), make_record(model="dagpam", world_size=4, gpu="multi4"))
    assert _table(tmp_path)[1]["Training speed ×"] == "–"


def test_a_model_file_may_leave_a_lambda_out(tmp_path):
    for weight in (0.1, 0.3):
        own = {"options": {"lambda_neg": weight}, "overrides_label": f"lambda_neg={weight}"}
        store(tmp_path, make_record(model="own", **own))
    assert [line["Model"] for line in _table(tmp_path)] == ["own (lambda- = 0.1)", "own (lambda- = 0.3)"]


def test_text_of_ones_own_may_lie_elsewhere(tmp_path):
    one, other = store(tmp_path, make_record(), make_record(seed=2))
    for record, folder in ((one, "text"), (other, "/elsewhere/text")):
        add_config(record, dataset__folder=folder)
    assert len(_table(tmp_path)) == 1


def test_samples_of_another_length_make_another_table(tmp_path):
    _, other = store(tmp_path, make_record(), make_record(model="dagpam"))
    add_config(other, fairseq__task__tokens_per_sample=32)
    with pytest.raises(UsageError, match=r"fairseq\.task\.tokens_per_sample"):
        _table(tmp_path)
