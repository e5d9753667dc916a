"""The search over lambda: decided on the validation set, resumed where it stopped, each trial an ordinary run."""

import os
from types import SimpleNamespace

import optuna
import pytest
from runs import composed, places, run_here, tiny_words

from gpam.errors import UsageError
from gpam_suite.config.compose import folder_of
from gpam_suite.records.folder import read_record
from gpam_suite.records.lines import append_history
from gpam_suite.run import search as module
from gpam_suite.run.outcomes import RunDiverged, RunFailed
from gpam_suite.run.search import search, validation_loss

NO_LAMBDAS = ["~search.options.lambda_neg", "~search.options.lambda_pos"]


@pytest.fixture
def trained(monkeypatch):
    """Instead of training: a validation loss that is least at lambda_neg = 0.3; the runs that were started. No text is
    prepared: its checksum is a word."""
    runs, accidents = [], {}
    monkeypatch.setattr(module, "prepare", lambda *_: SimpleNamespace(manifest={"checksum": "text"}))

    def run(cfg):
        runs.append((round(cfg.model.lambda_neg, 2), round(cfg.model.lambda_pos, 2)))
        if accident := accidents.get(len(runs)):
            accident()
        loss = 5 + (cfg.model.lambda_neg - 0.3) ** 2
        for update, more in ((100, 0.5), (200, 0), (300, 0.2)):
            append_history(folder_of(cfg), {"update": update, "split": "valid", "loss_bits": loss + more})
            append_history(folder_of(cfg), {"update": update, "split": "train", "loss_bits": 1.0})
        return 1.0  # the test set's number, which counts for nothing

    monkeypatch.setattr(module, "run", run)
    return runs, accidents


def configured(folder, *overrides):
    return composed("experiment=lm_laptop", *places(folder), "seed=3", *overrides, root="search")


def test_the_best_on_the_validation_set_is_found(tmp_path, trained, capsys):
    runs, _ = trained
    search(configured(tmp_path, "trials=25"))
    assert len(runs) == 25
    assert len(set(runs)) > 10
    said = capsys.readouterr().out
    assert "## lm_laptop_search: 25 trials" in said
    best = float(said.partition("Best on the validation set: model.lambda_neg=")[2].split()[0])
    assert abs(best - 0.3) <= 0.1
    search(configured(tmp_path, "trials=25"))
    assert len(runs) == 25  # done is done


@pytest.mark.parametrize("suggested", [True, False])
def test_a_search_that_was_killed_ends_as_it_would_have(tmp_path, trained, suggested):
    """While it trained, or between two suggestions."""
    runs, accidents = trained
    search(configured(tmp_path / "straight", "trials=6"))
    straight, runs[:] = list(runs), []
    stock, asked = optuna.Trial.suggest_float, []

    def suggest_float(self, name, **range_):
        if len(asked) == 5:
            os._exit(9)
        asked.append(name)
        return stock(self, name, **range_)

    accidents[3] = lambda: os._exit(9)
    if (child := os.fork()) == 0:
        try:
            if not suggested:
                optuna.Trial.suggest_float = suggest_float
            search(configured(tmp_path / "killed", "trials=6"))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    del accidents[3]
    search(configured(tmp_path / "killed", "trials=6"))
    assert runs == straight[2:]  # the third again, and on


def test_a_run_that_failed_ends_the_search_and_is_tried_again(tmp_path, trained, capsys):
    runs, accidents = trained

    def out_of_memory():
        raise RunFailed("failed: SIGKILL, which the system sends where memory has run out")

    accidents[2] = out_of_memory
    with pytest.raises(RunFailed, match="SIGKILL"):
        search(configured(tmp_path, "trials=3"))
    del accidents[2]
    search(configured(tmp_path, "trials=3"))
    assert len(runs) == 4 and runs[1] == runs[2]
    assert "| lost |" not in capsys.readouterr().out


def test_a_diverged_run_is_a_trial_without_a_value(tmp_path, trained, capsys):
    runs, accidents = trained

    def diverge():
        raise RunDiverged("diverged: the loss is NaN")

    accidents[2] = diverge
    search(configured(tmp_path, "trials=4"))
    assert len(runs) == 4
    assert capsys.readouterr().out.count("| lost |") == 1


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["+search.options.lambda_nge={low:0,high:1}"], "no option 'lambda_nge'; did you mean 'lambda_neg'"),
        (["search.options.lambda_neg={low:2,high:1}"], "wanted numbers: low, high .no less. and, where it has"),
        (["search.options.lambda_neg.low=a"], "'low': 'a', .* wanted numbers"),
        (["search.options.lambda_neg.step=0"], "a step above 0"),
        (["search.options.lambda_neg.high=true"], "'high': True, .* wanted numbers"),
        (NO_LAMBDAS, "search.options: got none, wanted ranges of"),
        (
            ["model=gfsa", *NO_LAMBDAS, "+search.options.gfsa_order={low:2,high:5}"],
            "search.options.gfsa_order: .* wanted whole numbers, with a step",
        ),
        (["search.options=lambda_neg"], "search.options: got 'lambda_neg', wanted a mapping"),
        (
            ["model=gfsa", *NO_LAMBDAS, "+search.options.gfsa_order={low:-3,high:5,step:1}"],
            "search.options.gfsa_order.low: option 'gfsa_order' of attention 'gfsa': got -3, wanted at least",
        ),
        (["+search.options.lambdas={low:0,high:1}"], "search.options.lambdas: it is no number"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, trained, overrides, sentence):
    with pytest.raises(UsageError, match=sentence):
        search(configured(tmp_path, *overrides))


def test_a_damaged_study_is_named(tmp_path, trained):
    configuration = configured(tmp_path, "trials=1")
    search(configuration)
    (file,) = tmp_path.rglob("study.db")
    file.write_bytes(file.read_bytes()[:100] + b"no database" * 1000)
    with pytest.raises(UsageError, match=r"study\.db is damaged \(.+\): remove it"):
        search(configuration)
    file.unlink()
    search(configuration)
    assert len(set(trained[0])) == 1  # the same suggestion, of which run() skips what is finished


def test_a_search_of_other_settings_wants_another_name(tmp_path, trained, monkeypatch):
    runs, _ = trained
    search(configured(tmp_path, "trials=2"))
    search(configured(tmp_path, "trials=3"))  # more of the same
    for change in ("model=dagpam_xavier", "++fairseq.optimization.max_update=7", "search.options.lambda_neg.high=9"):
        with pytest.raises(
            UsageError, match=r"has trials of another model, of other text or with other settings; give this one a name"
        ):
            search(configured(tmp_path, "trials=4", change))
    assert len(runs) == 3
    search(configured(tmp_path, "trials=1", "model=dagpam_xavier", "search.name=another"))
    assert len(runs) == 4
    monkeypatch.setattr(module, "prepare", lambda *_: SimpleNamespace(manifest={"checksum": "another text"}))
    with pytest.raises(UsageError, match="of other text"):
        search(configured(tmp_path, "trials=4"))


def test_whole_numbers_are_searched_among_whole_numbers(tmp_path, trained, monkeypatch):
    tried = []

    def run(cfg):
        tried.append(cfg.model.gfsa_order)
        append_history(folder_of(cfg), {"update": 1, "split": "valid", "loss_bits": 1.0})

    monkeypatch.setattr(module, "run", run)
    orders = ["model=gfsa", *NO_LAMBDAS, "+search.options.gfsa_order={low:2,high:4,step:1}"]
    search(configured(tmp_path, "trials=3", *orders))
    assert len(tried) == 3 and all(type(order) is int and 2 <= order <= 4 for order in tried)


def test_a_search_that_never_trained_takes_other_settings(tmp_path, trained, monkeypatch):
    def refused(cfg):
        raise UsageError("no such device")

    runs, _ = trained
    with monkeypatch.context() as patch, pytest.raises(UsageError, match="no such device"):
        patch.setattr(module, "run", refused)
        search(configured(tmp_path, "trials=1"))
    search(configured(tmp_path, "trials=1", "search.options.lambda_neg.low=5", "search.options.lambda_neg.high=9"))
    assert len(runs) == 1 and 5 <= runs[0][0] <= 9


def test_a_folder_may_have_signs_of_an_address_in_its_name(tmp_path, trained):
    search(configured(tmp_path, "trials=1", f"paths.results='{tmp_path}/50% or ?so=1'"))
    assert (tmp_path / "50% or ?so=1/searches/lm_laptop_search/study.db").is_file()


def test_what_is_printed_is_what_was_trained(tmp_path, trained, capsys, monkeypatch):
    values, train = [], module.run
    monkeypatch.setattr(module, "run", lambda cfg: (values.append(cfg.model.lambda_neg), train(cfg)))
    search(configured(tmp_path, "trials=1", "search.options.lambda_neg.step=null"))
    assert f"Best on the validation set: model.lambda_neg={values[0]} " in capsys.readouterr().out


def test_the_objective_is_of_the_checkpoint_called_best_without_label_smoothing(tmp_path):
    for update, loss, own in ((1, 5.0, 4.0), (2, 4.5, 4.2), (3, 4.6, 3.9)):
        append_history(tmp_path, {"update": update, "split": "valid", "loss_bits": loss, "nll_bits": own})
    assert validation_loss(tmp_path) == 4.2
    with pytest.raises(RunFailed, match="no validation in its history"):
        validation_loss(tmp_path / "none")


def test_a_trial_is_an_ordinary_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "run", run_here)
    search(composed(*tiny_words(tmp_path, "trials=1"), root="search"))
    (folder,) = (tmp_path / "results" / "runs" / "local_lm_search").glob("*/*")
    record = read_record(folder)
    assert record["status"] == "finished"
    assert f"| {validation_loss(folder):.3f} | {folder} |" in capsys.readouterr().out
    assert f"{record['options']['lambda_neg']:g}" in folder.parent.name
