"""What BLEU is of: raw text by sacreBLEU's tokeniser, text that came tokenised as it is, and the record says which."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import sacrebleu
import torch
from omegaconf import OmegaConf
from record_factory import PROTOCOLS, make_record, store, tabulate
from runs import run_here, tiny

from gpam.errors import UsageError
from gpam_suite.config.compose import folder_of
from gpam_suite.config.fairseq_tree import fairseq_config
from gpam_suite.data import prepare
from gpam_suite.data.second_test import check_same_second_test, keep_second_test, second_test_checksum
from gpam_suite.evaluate.limits import left_out
from gpam_suite.evaluate.references import kind_of
from gpam_suite.evaluate.rescore import evaluate_again
from gpam_suite.evaluate.translation import Metrics, translate_sentences
from gpam_suite.records.folder import HYPOTHESES, read_record
from gpam_suite.run.run import run

RAW = ["Well, that's it.", "Is it?", "No stop at all", "Dr. Who paid 3.50 dollars!"]
TOKENISED = ["well , that &apos;s it .", "is it ?", "no stop at all", "dr. who paid 3.50 dollars !"]


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (RAW, []),
        (TOKENISED, ["tokenised", "lower-cased"]),
        ([line.title() for line in TOKENISED], ["tokenised"]),
        ([line.lower() for line in RAW], ["lower-cased"]),
        (["it is so .", "and then ..."] * 20, ["tokenised", "lower-cased"]),
        (["It is so.", "Qui est-ce ?"] * 20, []),
        (["Qui est-ce ?", "..."], []),
        (["It is so ."] * 99 + ["It is so."], ["tokenised"]),
        (["It is so ."] * 98 + ["It is so."] * 2, []),
        (["12 . 3", "\u5b9e\u9a8c"], []),
        ([], []),
    ],
)
def test_what_references_are_is_read_off_the_text(lines, kind):
    assert kind_of(lines) == kind


@pytest.mark.parametrize(
    ("lines", "tokeniser"),
    [
        (RAW, "13a"),
        (["\uadf8\ub294 \uac04\ub2e4.", "\u043e\u043d \u0438\u0434\u0451\u0442."], "13a"),  # with spaces
        (["\u4ed6\u4e70\u4e86\u4e00\u53f0IBM\u3002"], "zh"),
        (["\u5f7c\u306fIBM\u3092\u8cb7\u3063\u305f\u3002"], "char"),
        (["\u0e40\u0e02\u0e32\u0e0b\u0e37\u0e49\u0e2d"], "char"),
        (["12.", ""], "13a"),
    ],
)
def test_raw_text_is_cut_by_the_tokeniser_for_its_script(lines, tokeniser):
    metrics = Metrics(lines, lowercase=False)
    metrics.scores(lines, lines)
    assert f"tok:{tokeniser}|" in metrics.protocol()["sacrebleu"]


def test_tokenised_text_is_scored_as_it_is():
    hypotheses = [line.replace("it", "he") for line in TOKENISED]
    metrics = Metrics(TOKENISED, lowercase=False)
    ours = metrics.scores(hypotheses, TOKENISED)
    assert ours["bleu"] == sacrebleu.corpus_bleu(hypotheses, [TOKENISED], tokenize="none", force=True).score
    assert ours["bleu"] != sacrebleu.corpus_bleu(hypotheses, [TOKENISED], force=True).score
    assert "tok:none" in metrics.protocol()["sacrebleu"]
    assert metrics.protocol()["references"] == "tokenised, lower-cased"
    raw = Metrics(RAW, lowercase=False)
    raw.scores(RAW, RAW)
    assert "tok:13a" in raw.protocol()["sacrebleu"] and "references" not in raw.protocol()
    assert metrics.statistics("a &apos; b", "a &apos; b")[:2] == [3, 3]


def test_the_table_says_what_its_bleu_is(tmp_path):
    protocol = {**PROTOCOLS["nmt"], "references": "tokenised, lower-cased"}
    store(tmp_path, make_record(task="nmt", experiment="nmt", protocol=protocol))
    page = tabulate(tmp_path)[0].read_text()
    assert "BLEU of tokenised, lower-cased text as it is: comparable only with scores of the same tokens" in page


def second_test(mirror, **files: str) -> list[str]:
    """Overrides that name a second test set of files below ``mirror``."""
    named = [f"+evaluation.second_test.{side}={{mirror:{file},urls:[],checksums:[]}}" for side, file in files.items()]
    return ["+evaluation.second_test.name=again", *named, f"paths.mirror={mirror}"]


def test_a_second_test_set_is_read_and_scored_as_the_first_one(tmp_path):
    longer = ["++fairseq.optimization.max_update=100", "++fairseq.lr_scheduler.warmup_updates=10"]
    longer += ["++fairseq.dataset.validate_interval_updates=100", "++fairseq.checkpoint.save_interval_updates=100"]
    second = second_test(tmp_path / "text-nmt", cs="valid.cs", en="valid.en")
    cfg = tiny(tmp_path, *longer, "preprocessing.tokenizer=moses", *second, task="nmt")
    for side in ("cs", "en"):
        checksum = hashlib.sha256((tmp_path / "text-nmt" / f"valid.{side}").read_bytes()).hexdigest()
        cfg.evaluation.second_test[side].checksums = [f"sha256:{checksum}"]
    run_here(cfg)
    record = read_record(folder_of(cfg))
    metrics = record["metrics"]
    assert metrics["test_chrf"] > 0
    assert record["protocol"]["second_test"] == "again"
    first, again = (folder_of(cfg) / name for name in (HYPOTHESES, f"second_test_{HYPOTHESES}"))
    said, wanted = again.read_text().splitlines(), (tmp_path / "text-nmt" / "valid.en").read_text().splitlines()
    assert said != first.read_text().splitlines()
    for name in ("bleu", "chrf", "ter"):
        assert metrics[f"second_test_{name}"] == getattr(sacrebleu, f"corpus_{name}")(said, [wanted]).score
    mirrored = {side: {"mirror": f"train.{side}", "urls": []} for side in ("cs", "en")}
    evaluation = {"second_test": {"name": "another", **mirrored}}
    asked = {"run": str(folder_of(cfg)), "threads": 1, "evaluation": evaluation, "paths": cfg.paths}
    evaluate_again(OmegaConf.create(asked))
    (found,) = folder_of(cfg).glob("evaluations/*/evaluation.json")
    protocol = json.loads(found.read_text())["protocol"]
    assert (protocol["second_test"], len(protocol["second_test_checksum"])) == ("another", 64)
    assert "second_test_checksum" not in record["protocol"]  # its configuration has them
    assert found.with_name("second_test.en").read_text() == (tmp_path / "text-nmt" / "train.en").read_text()


@pytest.mark.parametrize(
    ("task", "files", "complaint"),
    [
        ("lm", {"cs": "test.cs", "en": "test.en"}, "evaluation.second_test: a lm run has no such option"),
        ("nmt", {"en": "test.en"}, "evaluation.second_test.cs is missing"),
        ("nmt", {"cs": "3", "en": "test.en"}, "evaluation.second_test.cs: got .*'mirror': 3.* wanted mirror"),
        ("nmt", {"cs": "test.cs", "en": "none.en"}, "none.en could not be had"),
        ("nmt", {"cs": "test.cs", "en": "train.en"}, "its sides have 12 and 120 lines, wanted as many"),
    ],
)
def test_a_second_test_set_that_cannot_be_had_is_refused_before_training(tmp_path, task, files, complaint):
    cfg = tiny(tmp_path, *second_test(tmp_path / "text-nmt", **files), task=task)
    with pytest.raises(UsageError, match=complaint):
        run(cfg)
    assert not folder_of(cfg).exists()


def test_a_second_test_set_that_changed_under_a_finished_run_is_noticed(tmp_path, caplog):
    cfg = tiny(tmp_path, *second_test(tmp_path / "text-nmt", cs="valid.cs", en="valid.en"), task="nmt")
    keep_second_test(cfg, tmp_path)
    check_same_second_test(cfg, tmp_path)
    first, text = second_test_checksum(tmp_path), tmp_path / "text-nmt" / "valid.en"
    text.write_text(text.read_text().replace("K", "L"))
    with pytest.raises(UsageError, match=r"is finished, but evaluation.second_test.en has changed since"):
        check_same_second_test(cfg, tmp_path)
    keep_second_test(cfg, tmp_path)
    assert second_test_checksum(tmp_path) != first
    text.unlink()
    check_same_second_test(cfg, tmp_path)
    assert "cannot be compared" in caplog.text


@pytest.mark.parametrize("name", ["test.en", "valid.en"])
def test_tokenised_references_of_translations_that_become_plain_text_are_refused(tmp_path, name):
    second = second_test(tmp_path / "text-nmt", cs="valid.cs", en="valid.en")
    cfg = tiny(tmp_path, "preprocessing.tokenizer=moses", *second, task="nmt")
    text = Path(cfg.dataset.folder) / name
    text.write_text("".join(f"{line} .\n" for line in text.read_text().splitlines()))
    said = {"test.en": "the test set", "valid.en": "second_test=again"}[name]
    with pytest.raises(
        UsageError, match=f"the references of {said} are tokenised .*, and preprocessing.tokenizer=moses"
    ):
        run(cfg)
    assert not folder_of(cfg).exists()


def test_a_second_test_set_is_a_mapping(tmp_path):
    with pytest.raises(UsageError, match=r"evaluation\.second_test: got 'multi30k_2017', wanted a mapping"):
        run(tiny(tmp_path, "+evaluation.second_test=multi30k_2017", task="nmt"))


def test_a_sentence_that_does_not_fit_is_refused_before_training(tmp_path, caplog):
    long_test, long_second = ["word " * 40], ["word " * 60]
    lines = {"again.cs": long_second, "again.en": ["word"]}
    cfg = tiny(tmp_path, "preprocessing.bpe=none", "preprocessing.bpe_size=0", task="nmt")
    text = Path(cfg.dataset.folder)
    more = {"test.cs": ["word"], "test.en": long_test, "train.cs": ["word"], "train.en": ["word " * 200]}
    for name, own in more.items():
        lines[name] = [*(text / name).read_text().splitlines(), *own]
    for name, own in lines.items():
        (text / name).write_text("".join(f"{line}\n" for line in own))
    for options, complaint in (
        (["evaluation.max_tokens=40"], r"evaluation\.max_tokens=40 is less than the longest target .*, 41 tokens"),
        (["++fairseq.model.max_target_positions=40"], r"fairseq\.model\.max_target_positions=40 is .* \(test\), 41"),
        (
            ["evaluation.max_tokens=41", *second_test(text, cs="again.cs", en="again.en")],
            r"evaluation\.max_tokens=41 is less than the longest source .* \(second test set\), 61 tokens",
        ),
        (  # one device trains on it
            ["gpu.devices=2", "++fairseq.optimization.update_freq=[1]"],
            r"fairseq\.dataset\.max_tokens=256 for 2 devices is less than the longest target .* \(train\), 201 tokens",
        ),
    ):
        narrow = tiny(tmp_path, "preprocessing.bpe=none", "preprocessing.bpe_size=0", *options, task="nmt")
        with pytest.raises(UsageError, match=complaint):
            run(narrow)
        assert not folder_of(narrow).exists()
    prepared = prepare(cfg.dataset, cfg.preprocessing, cfg.paths)
    assert left_out(fairseq_config(cfg), prepared) == 0
    for limit, found in ((201, 0), (200, 1), (100, 1)):  # the longest target has 201 tokens
        cfg.fairseq.dataset.max_tokens = limit
        assert left_out(fairseq_config(cfg), prepared) == found
    assert (
        "1 of 121 training pairs are too long, and are left out: the lowest limit is fairseq.dataset.max_"
        in caplog.text
    )


def test_beam_and_length_penalty_reach_the_search():
    seen = {}
    task = SimpleNamespace(
        build_generator=lambda models, given: seen.update(given),
        get_batch_iterator=lambda *_, **__: SimpleNamespace(next_epoch_itr=lambda **_: []),
    )
    model = torch.nn.Linear(1, 1)
    model.max_positions = lambda: 9
    assert translate_sentences(model, task, [], {"beam": 7, "length_penalty": 0.3, "max_tokens": 9}) == []
    assert seen == {"beam": 7, "lenpen": 0.3, "max_len_a": 1.2, "max_len_b": 10}


def test_text_in_lower_case_is_scored_without_regard_to_case(tmp_path):
    metrics = Metrics(["THE CAT SAT ON IT"], lowercase=True)
    assert metrics.scores(["the cat sat on it"], ["THE CAT SAT ON IT"])["chrf"] == pytest.approx(100)
    cfg = tiny(tmp_path, "preprocessing.lowercase=true", task="nmt")
    run_here(cfg)
    assert "case:lc" in read_record(folder_of(cfg))["protocol"]["sacrebleu"]
