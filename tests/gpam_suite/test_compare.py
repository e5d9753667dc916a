"""Two runs side by side: what is said to differ, wins and losses by hand, what is refused, and how it is printed."""

import io
import math
import re
from pathlib import Path

import pytest
import sacrebleu
from record_factory import PROTOCOLS, add_config, add_document_scores, failed, make_record, store
from rich.console import Console

from gpam.errors import UsageError
from gpam_suite.common import sections
from gpam_suite.common.files import write_atomically
from gpam_suite.common.places import ROOT
from gpam_suite.common.sections import Section, Table, as_markdown, print_sections
from gpam_suite.evaluate.translation import Metrics
from gpam_suite.records import archives
from gpam_suite.records.lines import write_scores
from gpam_suite.report.compare import compare


def _group(results, model, values, **fields):
    """Runs of a language model, a seed for each value; the folder of their group."""
    runs = store(results, *[make_record(model=model, seed=k, value=v, **fields) for k, v in enumerate(values, 1)])
    for run in runs:
        add_document_scores(run)
    return runs[0].folder.parent


def _text(found):
    return "\n".join(as_markdown(section) for section in found)


def _table(found, title):
    (section,) = [section for section in found if section.title == title]
    (table,) = [block for block in section.blocks if isinstance(block, Table)]
    return {line[0]: list(line[1:]) for line in table.cells}


@pytest.fixture
def groups(tmp_path):
    return _group(tmp_path, "softmax", (30.1, 30.2, 30.3)), _group(tmp_path, "dagpam", (29.2, 29.4, 29.6))


# ------------------------------------------------------------------------------------------------- differences by hand


def test_result_of_two_groups(groups):
    found = compare(*groups)
    result = _table(found, "Result")
    # differences by seed -0.9, -0.8, -0.7: mean -0.8, sd 0.1, half width 4.302653 * 0.1 / sqrt(3) = 0.2484
    assert result["Test perplexity"] == ["30.20 ± 0.10", "29.40 ± 0.20", "-0.80", "[-1.05, -0.55]"]
    assert result["Parameters"] == ["100,000", "100,256", "+0.26 %", "–"]
    assert result["Training tokens per second"][2] == "-22.22 %"
    text = _text(found)
    # t = 0.8 / (0.1 / sqrt(3)) = 13.856 with 2 degrees of freedom
    assert "Over seeds (paired t over 3 seeds): Test perplexity -0.80 [-1.05, -0.55], p = 0.005." in text
    assert "(paired bootstrap over 40 documents, 1000 resamples): -0.80 [" in text
    assert "Over seeds and test set (hierarchical bootstrap" in text
    # eight standard deviations: with two seeds |T| > 12.7 needs a spread below 0.89, whose chance is only 0.63
    assert "A: Softmax, Python documentation, seeds 1, 2, 3 (" in text


def test_only_what_differs_is_listed(tmp_path, groups):
    softmax, _ = groups
    versions, git = {"python": "3.11.9", "torch": "2.7.0"}, {"commit": "1" * 40, "dirty": True}
    (other,) = store(tmp_path, make_record(experiment="other", recipe="mine", seed=4, versions=versions, git=git))
    add_config(other, fairseq__optimization__lr=[0.001], tokenizer__name="moses")
    add_document_scores(other)
    found = compare(softmax, other.folder)
    assert _table(found, "Configuration") == {
        "seed": ["1, 2, 3", "4"],
        "fairseq.optimization.lr": ["[0.002]", "[0.001]"],
        "tokenizer.name": ["–", "moses"],
    }
    assert _table(found, "Environment") == {
        "git commit": ["0000000000", "1111111111 and other code"],
        "versions.torch": ["2.6.0", "2.7.0"],
    }
    assert "Over seeds: no test (no interval: one seed)." in _text(found)
    assert "Warning: too few seeds to tell a difference from chance (B (Softmax)); 3 are the least" in _text(found)


def test_numbers_by_token_do_not_compare_where_tokens_differ(tmp_path):
    sides = []
    for model, size in (("softmax", 100), ("dagpam", 200)):
        metrics = {"test_perplexity": 30.0, "test_token_perplexity": 9.0}
        (run,) = store(tmp_path, make_record(model=model, experiment=model, metrics=metrics))
        add_config(run, preprocessing__bpe_size=size)
        sides.append(run.folder)
    result = _table(compare(*sides), "Result")
    assert result["Test perplexity"][2] == "0.00"
    by_token = ("Test token perplexity", "Training FLOPs per token", "Training tokens per second")
    assert {result[title][2] for title in by_token} == {"–"}


def test_a_run_differs_in_nothing_from_itself(groups):
    run = next(groups[0].glob("seed1-*"))
    found = compare(run, run)
    assert _text(found).count("Nothing differs.") == 2
    assert "B wins 0, loses 0 and ties 40 of 40" in _text(found)
    assert "0.00 [0.00, 0.00], p = 1.000" in _text(found)


def test_documents_won_and_lost_by_hand(tmp_path):
    words, runs = [10, 10, 20, 30], []
    for model, losses in (("softmax", (3.0, 4.0, 5.0, 2.0)), ("dagpam", (2.5, 4.0, 5.25, 2.25))):
        nll = [n * loss for n, loss in zip(words, losses, strict=True)]
        (run,) = store(tmp_path, make_record(model=model, value=math.exp(sum(nll) / sum(words))))
        rows = zip(words, nll, strict=True)
        write_scores(run.folder, [{"document": i, "words": n, "nll": total} for i, (n, total) in enumerate(rows)])
        runs.append(run)
    found = compare(*[run.folder for run in runs])
    assert "By document (loss in nats per word, mean over seeds) B wins 1, loses 2 and ties 1 of 4." in _text(found)
    most = _table(found, "Where they differ most")
    assert set(most) == {"0", "2", "3"} and next(iter(most)) == "0"  # what B wins, then its losses; the tie is none
    assert most["2"] == ["20", "5.000", "5.250", "+0.250"]
    back = _text(compare(*[run.folder for run in reversed(runs)]))
    assert "On the test set: no test, as it was scored in 4 parts, and drawing wants 10 or more." in back
    assert "B wins 2, loses 1 and ties 1 of 4." in back and "| 2 | 20 | 5.250 | 5.000 | -0.250 |" in back


def test_characters_are_no_words(tmp_path):
    protocol = {**PROTOCOLS["lm"], "unit": "character"}
    runs = store(tmp_path, *[make_record(model=model, value=5.0, protocol=protocol) for model in ("softmax", "dagpam")])
    for run in runs:
        write_scores(run.folder, [{"document": i, "words": 10 + i, "nll": (10 + i) * math.log(5)} for i in range(4)])
    text = _text(compare(*[run.folder for run in runs]))
    assert "(loss in nats per character, mean" in text
    assert "| Test perplexity | 5.000 | 5.000 | 0.000 |" in text


# --------------------------------------------------------------------------------------------------------- translation

REFERENCES = ["the cat sat on the mat", "a dog", "one two three four five six seven", "the red house is old"]
BASE = ["the cat sat on the mat", "a cat", "one two three four six seven", "a red house was old"]
SYSTEMS = {
    1: ["the cat sat on a mat", "a dog", "one two three four six seven", "a red house is old"],
    2: ["the cat sat on the mat", "a dog", "one two three four six seven", "the red house is old"],
}


def _translation(results, model, seed, hypotheses):
    bleu = sacrebleu.corpus_bleu(hypotheses, [REFERENCES]).score
    (run,) = store(results, make_record(task="nmt", model=model, seed=seed, value=bleu))
    metrics = Metrics(REFERENCES, lowercase=False)
    rows = [metrics.statistics(*pair) for pair in zip(hypotheses, REFERENCES, strict=True)]
    write_scores(run.folder, [{"sentence": i, "bleu": row} for i, row in enumerate(rows)])
    write_atomically(run.folder / "hypotheses.txt", "".join(f"{line}\n" for line in hypotheses))
    return run


@pytest.fixture
def translations(tmp_path):
    base = [_translation(tmp_path, "softmax", seed, BASE) for seed in (1, 2)]
    return base, [_translation(tmp_path, "dagpam", seed, lines) for seed, lines in SYSTEMS.items()]


def _sentence_bleu(hypothesis, index):
    return sacrebleu.BLEU(effective_order=True).sentence_score(hypothesis, [REFERENCES[index]]).score


def test_sentences_won_and_lost(translations):
    found = compare(*[runs[0].folder.parent for runs in translations])
    assert "By sentence (sentence BLEU, mean over seeds) B wins 2, loses 1 and ties 1 of 4." in _text(found)
    most = _table(found, "Where they differ most")
    assert set(most) == {"0", "1", "3"}
    means = [(_sentence_bleu(SYSTEMS[1][i], i) + _sentence_bleu(SYSTEMS[2][i], i)) / 2 for i in range(4)]
    for index in (0, 1, 3):
        a = _sentence_bleu(BASE[index], index)
        assert most[str(index)][1:3] == [f"{a:.2f}", f"{means[index]:.2f}"]
    blocks = found[-1].blocks
    assert "sentence 0\n  A, seed 1: the cat sat on the mat\n  B, seed 1: the cat sat on a mat" in blocks


def test_sentences_of_an_archive_are_quoted(translations, tmp_path):
    folders = [runs[0].folder.parent for runs in translations]
    experiment = folders[0].parent
    files = {str(path.relative_to(experiment)): path.read_bytes() for path in experiment.rglob("*") if path.is_file()}
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / f"{experiment.name}.tar.xz").write_bytes(archives.pack(files))
    found = compare(*[tmp_path / "packed" / experiment.name / folder.name for folder in folders])
    assert any("A, seed 1: the cat sat on the mat" in str(block) for block in found[-1].blocks)


def test_hypotheses_of_another_evaluation_are_refused(translations):
    (run, *_), (other, *_) = translations
    write_atomically(run.folder / "hypotheses.txt", "one line\n")
    with pytest.raises(UsageError, match=r"hypotheses\.txt has 1 lines but the test set 4 sentences"):
        compare(run.folder, other.folder)


def test_of_several_settings_those_count_that_the_other_side_has(tmp_path, groups):
    longer = store(tmp_path, *[make_record(model="dagpam", seed=k, value=20.0, config_hash=f"{k:08x}") for k in (1, 2)])
    for run in longer:
        add_config(run, fairseq__optimization__max_update=400)
        add_document_scores(run)
    found = compare(*groups)
    assert _table(found, "Result")["Test perplexity"][1] == "29.40 ± 0.20"
    assert "B: those trained as the other side; not daGPAM, schedule of 400 updates in the same folder." in _text(found)
    with pytest.raises(UsageError, match=r"A: the folder holds runs of several settings: .*name one of"):
        compare(groups[1], groups[1])
    (alone,) = store(tmp_path, make_record(model="nap", value=25.0))
    add_config(alone, fairseq__optimization__max_update=300)
    with pytest.raises(UsageError, match="B: the folder holds runs of several settings"):
        compare(alone.folder, groups[1])


def test_the_published_comparison_works():
    text = (ROOT / "results" / "README.md").read_text(encoding="utf-8")
    (folders,) = re.findall(r"compare\.py (\S+) (\S+)", text)
    assert compare(*(ROOT / folder for folder in folders))


# ------------------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"protocol": {**PROTOCOLS["lm"], "context_window": 32}}, "protocol.context_window is 0 in A but 32 in B."),
        ({"protocol": {**PROTOCOLS["lm"], "stride": 8}}, "protocol.stride is missing in A but 8 in B."),
        ({"data": {"checksum": "x", "name": "n", "counts": {}}}, "data checksum is 5f2c in A but x in B."),
        ({"dataset": "wikitext2"}, "dataset is python_docs in A but wikitext2 in B."),
        ({"task": "nmt"}, "task is lm in A but nmt in B."),
    ],
)
def test_other_protocols_and_data_are_refused(tmp_path, groups, change, sentence):
    (other,) = store(tmp_path, make_record(experiment="other", **change))
    folders = groups[0], other.folder
    with pytest.raises(UsageError) as error:
        compare(*folders)
    assert f"A and B do not compare: {sentence} Name two" in str(error.value)


def test_language_models_of_other_words_are_refused(tmp_path):
    """Of the same text; what is not used is as good as not named."""

    def run(name, **preprocessing):
        (record,) = store(tmp_path, make_record(experiment=name))
        add_config(record, **{f"preprocessing__{key}": value for key, value in preprocessing.items()})
        return record.folder

    plain, named = run("plain"), run("named", tokenizer="none", lowercase=False, min_count=0, bpe="characters")
    assert compare(plain, named)
    with pytest.raises(UsageError, match=r"preprocessing\.min_count is missing in A but 3 in B"):
        compare(plain, run("cut", min_count=3))


def test_another_recipe_is_a_question_like_any_other(tmp_path, groups):
    (other,) = store(tmp_path, make_record(experiment="other", recipe="mine", value=20.0))
    add_document_scores(other)
    assert "On the test set (paired bootstrap" in _text(compare(groups[0], other.folder))


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("nowhere", "A: nowhere holds no run that has ended"),
        (".", "holds no run that has ended"),
        ("runs/{experiment}", "holds runs of several models, wanted one: dagpam-default, softmax-default"),
        ("runs/{experiment}/sofmax-default", "did you mean 'softmax-default'"),
    ],
)
def test_folders_that_hold_no_run(groups, tmp_path, monkeypatch, folder, sentence):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=sentence):
        compare(Path(folder.format(experiment=groups[0].parent.name)), groups[1])


def test_a_difference_over_fewer_seeds_than_the_means_says_so(tmp_path, groups):
    assert _text(compare(*groups)).count("Means are over all seeds") == 0
    other = _group(tmp_path, "neutreno", (29.0, 29.2))
    found = compare(groups[0], other)
    assert _table(found, "Result")["Test perplexity"][:3] == ["30.20 ± 0.10", "29.10 ± 0.14", "-1.05"]
    said = "Means are over all seeds of a side, differences of scores over those that both have: 1, 2."
    assert said in _text(found)


def test_lost_and_unended_seeds_are_told(tmp_path, groups):
    store(tmp_path, failed(make_record(model="dagpam", seed=4)))
    (groups[1] / "seed5-00000000").mkdir()
    text = _text(compare(*groups))
    assert "B, seed 4: diverged: loss is NaN at update 120" in text
    assert "B: seed5-00000000 not ended, not in these numbers." in text
    assert "B: daGPAM, Python documentation, seeds 1, 2, 3, 4 (" in text


def test_nothing_finished_is_no_test(tmp_path, groups):
    (lost,) = store(tmp_path, failed(make_record(model="nap", protocol={})))
    text = _text(compare(groups[0], lost.folder))
    assert "No test: a side has no finished seed with Test perplexity." in text
    assert "## Where" not in text


# ------------------------------------------------------------------------------------------------------------ printing


def test_terminal_gets_tables_and_text_is_no_markup(monkeypatch, capsys):
    stream = io.StringIO()
    monkeypatch.setattr(
        sections, "Console", lambda **given: Console(file=stream, force_terminal=True, width=90, **given)
    )
    print_sections([Section("Title", ["a [bold]line[/bold]", Table(["Name", "Number"], [["[x]", "1"]])])])
    shown = stream.getvalue()
    assert "a [bold]line[/bold]" in shown
    assert "[x]" in shown
    assert "\x1b[1m" in shown
    assert "───" in shown
    assert capsys.readouterr().out == ""


def test_the_script_prints_plain_text_or_one_sentence(groups, command):
    code, out, err = command("compare.py", *groups)
    assert (code, err) == (0, "")
    assert "| Test perplexity | 30.20 ± 0.10 | 29.40 ± 0.20 | -0.80 | [-1.05, -0.55] |\n" in out
    assert "\x1b" not in out
    for words in ([groups[0], "nowhere"], [groups[0]], [*groups, "--whatever"]):
        code, out, err = command("compare.py", *words)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert err.startswith("compare.py: ")


def test_costs_on_other_hardware_are_no_difference(tmp_path):
    a, b = (
        _group(tmp_path, "softmax", (30.0, 31.0)),
        _group(tmp_path, "dagpam", (29.0, 30.0), hardware={"gpu": "other"}),
    )
    result = _table(compare(a, b), "Result")
    assert result["Peak memory in bytes"][2] == result["Training tokens per second"][2] == "–"


def test_kilobytes_more_make_no_other_machine(tmp_path):
    bytes_of = {"softmax": 25276502016, "dagpam": 25276510208}
    a, b = (_group(tmp_path, name, (30.0, 31.0), hardware={"memory_bytes": of}) for name, of in bytes_of.items())
    found = compare(a, b)
    (environment,) = (section for section in found if section.title == "Environment")
    assert "Nothing differs." in environment.blocks
    assert _table(found, "Result")["Peak memory in bytes"][2] != "–"


def test_translations_are_scored_as_text_whatever_their_words(tmp_path):
    one, other = store(tmp_path, make_record(task="nmt"), make_record(task="nmt", model="dagpam"))
    add_config(other, preprocessing__min_count=3)
    assert one.scored_otherwise(other) == []
