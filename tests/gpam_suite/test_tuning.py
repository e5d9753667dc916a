"""The grid from which a recipe is chosen."""

import pytest
from record_factory import add_config, failed, make_record, painted, store
from runs import composed

from gpam.errors import UsageError
from gpam_suite.common.places import PUBLISHED
from gpam_suite.records.folder import read_records
from gpam_suite.records.lines import append_history
from gpam_suite.report.page import build
from gpam_suite.report.tuning_grid import search_curves, tuning
from gpam_suite.stats.tuning import FOLDER, best, grid, grids_of, tokens_seen


def tried(results, *perplexities, **config):
    """A run of the grid; ``fields`` of its record beside what its configuration says."""
    fields = config.pop("fields", {})
    lost = config.pop("lost", False)
    name = f"tune_{len(list((results / 'tuning').glob('runs/*')))}"
    run = make_record(task="nmt", experiment=name, value=20.0, **fields)
    (record,) = store(results / "tuning", failed(run) if lost else run)
    add_config(record, **{"fairseq__model__dropout": 0.1, **config})
    for update, perplexity in enumerate(perplexities, start=1):
        row = {"update": update, "split": "valid", "epoch": update, "token_perplexity": perplexity}
        append_history(record.folder, row)


def tuned(results):
    """Two settings of two models; daGPAM's second run diverged."""
    for model, rate, lost, perplexities in (
        ("softmax", 0.002, False, (14.0, 12.0)),
        ("dagpam", 0.002, False, (13.0, 11.0)),
        ("softmax", 0.004, False, (9.0, 10.0)),
        ("dagpam", 0.004, True, (7.0, 8.0)),
    ):
        tried(results, *perplexities, lost=lost, fairseq__optimization__lr=[rate], fields={"model": model})


def test_grid_by_hand(tmp_path):
    tuned(tmp_path)
    found = grid(read_records(tmp_path / "tuning"))
    first, second = found
    assert (first[:2], second[:2]) == ((0.002, 0.1), (0.004, 0.1))
    assert found == {first: {"Softmax": 12.0, "daGPAM": 11.0}, second: {"Softmax": 9.0, "daGPAM": None}}
    assert best(found, "Softmax") == second and best(found, "daGPAM") == first
    assert best(found, "NAP") is None


def test_a_grid_with_a_hole_chooses_nothing(tmp_path):
    tuned(tmp_path)
    tried(tmp_path, 30.0, fairseq__optimization__lr=[0.008])
    found = grid(read_records(tmp_path / "tuning"))
    assert best(found, "Softmax")[:2] == (0.004, 0.1) and best(found, "daGPAM") is None
    assert "daGPAM: the grid is not complete." in "\n".join(tuning(tmp_path))


def test_of_lost_runs_none_is_best(tmp_path):
    for rate in (0.002, 0.004):
        tried(tmp_path, 9.0, lost=True, fairseq__optimization__lr=[rate])
    assert "Softmax: every run was lost." in "\n".join(tuning(tmp_path))


def test_lengths_are_told_apart_where_tokens_are_not_counted(tmp_path):
    sentences = {"fairseq__dataset__max_tokens": None, "fairseq__dataset__batch_size": 64}
    for updates in (100, 200):
        tried(tmp_path, 9.0, **sentences, fairseq__optimization__max_update=updates)
    (lengths,) = grids_of(read_records(tmp_path / FOLDER)).values()
    assert [length.tokens for length in lengths] == [100, 200]


def test_a_second_run_of_a_setting_is_refused(tmp_path):
    tuned(tmp_path)
    tried(tmp_path, 8.0, fairseq__optimization__lr=[0.002], fields={"seed": 2})
    with pytest.raises(UsageError, match=r"a second run of Softmax at Setting\(lr=0.002, dropout=0.1"):
        grid(read_records(tmp_path / "tuning"))


def test_the_page_shows_the_choice_and_no_test_score(tmp_path):
    assert tuning(tmp_path) == []
    tuned(tmp_path)
    text = "\n".join(tuning(tmp_path))
    assert "| Learning rate | Dropout | Softmax | daGPAM |" in text
    assert "| 0.002 | 0.1 | 12.00 | **11.00** |" in text and "| 0.004 | 0.1 | **9.00** | lost |" in text
    assert "Best of Softmax: learning rate 0.004, dropout 0.1; daGPAM: learning rate 0.002, dropout 0.1." in text
    assert "20.00" not in text
    build(tmp_path)
    assert text in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_batches_and_the_place_of_the_layer_norm_are_told_apart(tmp_path):
    tries = [(2048, 1, True, 12.0), (1024, 4, True, 11.0), (1024, 1, True, 13.0), (2048, 1, False, 14.0)]
    for most, frequency, before, perplexity in tries:
        updates = 409_600 // (most * frequency)
        tried(
            tmp_path,
            perplexity,
            fairseq__optimization={"lr": [0.002], "update_freq": [frequency], "max_update": updates},
            fairseq__model={"dropout": 0.1, "decoder_normalize_before": before},
            fairseq__dataset__max_tokens=most,
        )
    options = {"model": "dagpam", "overrides_label": "a=1"}
    tried(tmp_path, 10.0, fairseq__model={"dropout": 0.1, "decoder_normalize_before": True}, fields=options)
    text = "\n".join(tuning(tmp_path))
    before, after = text.split(", post-LN:\n")
    assert before.count(", pre-LN:\n") == 1
    assert "| Learning rate | Dropout | Tokens an update | Softmax | daGPAM a=1 |" in before
    assert "| 0.002 | 0.1 | 4,096 | **11.00** | – |" in before and "| 0.002 | 0.1 | 2,048 | 12.00 | 10.00 |" in before
    assert "Best of Softmax: learning rate 0.002, dropout 0.1, tokens an update 4,096.\n" in before
    assert after.endswith("| 0.002 | 0.1 | 2,048 | 14.00 |\n")  # of one setting none is the best


def test_options_that_were_searched_are_rows_of_a_table_of_their_own(tmp_path):
    tried(tmp_path, 12.0)
    for neg, pos, perplexity in ((0.25, 0, 11.0), (0.25, 0.5, 9.0), (0.5, 0.5, 10.0)):
        tried(tmp_path, perplexity, model={"lambda_neg": neg, "lambda_pos": pos, "k": 1}, fields={"model": "dagpam"})
    softmax, dagpam = "\n".join(tuning(tmp_path)).split(", options of the model:\n")
    assert "| Learning rate | Dropout | Softmax |" in softmax
    assert "| Learning rate | Dropout | Options | daGPAM |" in dagpam
    assert "| 0.002 | 0.1 | lambda_neg=0.25, lambda_pos=0.5 | **9.00** |" in dagpam
    assert dagpam.endswith(
        "Best of daGPAM: learning rate 0.002, dropout 0.1, options lambda_neg=0.25, lambda_pos=0.5.\n"
    )


def test_runs_of_another_length_are_a_table_of_their_own(tmp_path):
    for updates, most, *found in ((4000, 1024, 12.0), (2000, 2048, 13.0), (4000, 2048, 12.0, 11.0)):
        own = {"lr": [0.002], "max_update": updates}
        tried(tmp_path, *found, fairseq__optimization=own, fairseq__dataset__max_tokens=most)
    text = "\n".join(tuning(tmp_path))
    short, long = text.split(", 2 epochs:\n")
    assert ", 1 epoch:\n" in short
    assert "| 0.002 | 0.1 | 1,024 | **12.00** |" in short and "| 0.002 | 0.1 | 2,048 | 13.00 |" in short
    assert "| 0.002 | 0.1 | 2,048 | 11.00 |" in long and "Best of" not in long


def test_a_run_without_validations_is_no_curve(tmp_path):
    for perplexity in (12.0, 11.0):
        tried(tmp_path, perplexity, fields={"model": "softmax"})
    (record,) = store(tmp_path / "tuning", make_record(task="nmt", experiment="tune_lost", value=20.0))
    add_config(record, fairseq__model__dropout=0.1)
    (panel,) = painted(search_curves(tmp_path, ()))
    assert len(panel.lines) == 2


def test_schedules_are_told_apart(tmp_path):
    tried(tmp_path, 11.0, fairseq__lr_scheduler={"_name": "cosine"})
    tried(tmp_path, 12.0, fairseq__lr_scheduler={"_name": "polynomial_decay", "power": 2.0})
    text = "\n".join(tuning(tmp_path))
    assert "| Learning rate | Dropout | Decay | Softmax |" in text
    assert "| 0.002 | 0.1 | cosine | **11.00** |" in text and "| 0.002 | 0.1 | power 2 | 12.00 |" in text


@pytest.mark.parametrize(
    "experiment, recipe",
    [("nmt_multi30k_de_en", "short_nmt"), ("lm_wikitext2_deep", "deep_lm"), ("lm_ptb", "ptb_15x128")],
)
def test_published_recipes_are_what_softmax_is_best_with(experiment, recipe):
    """Of the runs that are as long as the recipe's."""
    cfg = composed(f"experiment={experiment}")
    assert cfg.recipe.name == recipe
    own = cfg.fairseq.optimization
    length = cfg.fairseq.dataset.max_tokens * own.update_freq[0] * own.max_update
    tuned = read_records(PUBLISHED / "tuning")
    records = [record for record in tuned if (record["recipe"], record["model"]) == (recipe, "softmax")]
    records = [record for record in records if tokens_seen(record, record["updates"]) == length]
    assert best(grid(records), "softmax")[:2] == pytest.approx((own.lr[0], cfg.fairseq.model.dropout))
