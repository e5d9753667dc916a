"""Preparation of small text: what is written, that it decodes back, reuse, crashes, concurrency, hashes."""

import json
import logging
import multiprocessing
import subprocess
import sys

import pytest
from data_helpers import ENGLISH, GERMAN, PLAIN, monolingual, parallel, preparations
from omegaconf import OmegaConf

from gpam_suite.common.files import file_sha256
from gpam_suite.data import build, prepare
from gpam_suite.data.store import atomic
from gpam_suite.data.text.lines import read_lines


def decoded(folder, split, dictionary, stem=None):
    """The lines that fairseq reads back from the binarised data."""
    import gpam_fairseq.compat  # noqa: F401

    # isort: split
    from fairseq.data import Dictionary, data_utils

    words = Dictionary.load(str(folder / dictionary))
    data = data_utils.load_indexed_dataset(str(folder / (stem or split)), words)
    assert all(int(item[-1]) == words.eos() for item in data)
    return [words.string(item) for item in data]


def test_language_model_text_decodes_back(tmp_path):
    prepared = prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": tmp_path / "data", "mirror": None})
    assert prepared.task == "lm"
    assert prepared.source_lang is None and prepared.target_lang is None
    assert decoded(prepared.bin, "train", "dict.txt") == ENGLISH
    counts = prepared.manifest["splits"]["train"]
    # by hand: 4 + 7 + 4 + 4 words and 4 ends of sentence, five times over; 12 different words and the end mark
    assert (counts["lines"], counts["words"], counts["tokens"], counts["unk"]) == (20, 115, 115, 0)
    assert counts["types"] == len({word for line in ENGLISH for word in line.split()}) + 1 == 13
    assert counts["characters"] == sum(len(line) + 1 for line in ENGLISH)
    assert prepared.manifest["dictionary"] == 16  # 12 words, 4 symbols, a multiple of 8 already
    assert prepared.words("test") == 115
    assert prepared.documents("valid") == [0]


def test_parallel_text_decodes_back_and_may_have_one_dictionary(tmp_path):
    paths = OmegaConf.create({"data": str(tmp_path / "data"), "mirror": None})
    prepared = prepare(OmegaConf.create(parallel(tmp_path / "raw")), OmegaConf.create(PLAIN), paths)
    assert (prepared.source_lang, prepared.target_lang) == ("de", "en")
    assert decoded(prepared.bin, "train", "dict.de.txt", "train.de-en.de") == GERMAN
    assert decoded(prepared.bin, "test", "dict.en.txt", "test.de-en.en") == ENGLISH
    assert read_lines(prepared.reference("test")) == ENGLISH
    assert read_lines(prepared.source_text("test")) == GERMAN
    assert prepared.words("test") == prepared.manifest["splits"]["test"]["target"]["words"] == 115
    prepared = prepare(parallel(tmp_path / "raw"), PLAIN | {"joined_dictionary": True}, paths)
    left, right = (prepared.bin / f"dict.{language}.txt" for language in ("de", "en"))
    assert left.read_bytes() == right.read_bytes()
    assert {"Hund", "dog"} <= {line.split()[0] for line in read_lines(left)}


def test_rare_words_and_the_mark_itself_are_unknown(tmp_path):
    text = ["often often rare twice <unk>", "often twice"]
    options = PLAIN | {"min_count": 2}
    prepared = prepare(monolingual(tmp_path / "raw", train_txt=text), options, {"data": tmp_path / "d"})
    assert decoded(prepared.bin, "train", "dict.txt")[0] == "often often <unk> twice <unk>"
    counts = prepared.manifest["splits"]["train"]
    assert (counts["unk"], counts["types"]) == (2, 5)  # often, rare, twice, <unk>, end of line
    assert "<unk>" not in {line.split()[0] for line in read_lines(prepared.bin / "dict.txt")}


def test_blank_pairs_are_dropped_and_blank_lines_of_language_models_kept(tmp_path):
    """With Windows line ends, a byte order mark, and other separators in the latter."""
    dataset = parallel(tmp_path / "nmt", train_de=["ein", " ", "zwei", "drei"], train_en=["one", "x", "", "three"])
    prepared = prepare(dataset, PLAIN, {"data": tmp_path / "data"})
    assert read_lines(prepared.source_text("train")) == ["ein", "drei"]
    assert read_lines(prepared.reference("train")) == ["one", "three"]
    assert prepared.manifest["splits"]["train"]["dropped"] == 2
    content = "\ufeffone\r\n\ntwo\u2028still two\rand still\r\n".encode()
    prepared = prepare(monolingual(tmp_path / "lm", train_txt=content), PLAIN, {"data": tmp_path / "data"})
    assert read_lines(prepared.source_text("train")) == ["one", "", "two\u2028still two and still"]
    assert decoded(prepared.bin, "train", "dict.txt") == ["one", "", "two still two and still"]
    assert prepared.words("train") == 9


def test_blank_test_pairs_are_told(tmp_path, caplog):
    """What translates them elsewhere has other lines."""
    prepare(
        parallel(tmp_path / "nmt", test_de=["ein", "zwei"], test_en=["one", " "]), PLAIN, {"data": tmp_path / "data"}
    )
    assert "test: 1 pair with a blank side left out" in caplog.messages


@pytest.mark.parametrize(("module", "step"), [(build, "binarise"), (atomic, "publish")])
def test_killed_preparation_leaves_nothing_unfinished(tmp_path, monkeypatch, module, step):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, step, killed)
    with pytest.raises(KeyboardInterrupt):
        prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": tmp_path / "data"})
    assert preparations(tmp_path / "data") == []
    assert not list((tmp_path / "data").rglob("*.tmp"))
    monkeypatch.undo()
    assert prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": tmp_path / "data"}).words("train") == 115


def _prepare_at_the_barrier(dataset, data, barrier, names):
    publish = atomic.publish

    def meet(temporary, folder, summary):
        if summary == "manifest.json":
            barrier.wait(240)  # both have finished their work and neither has published it
        publish(temporary, folder, summary)

    atomic.publish = meet
    names.put(prepare(dataset, PLAIN, {"data": data}).folder.name)


def test_two_processes_at_once_both_succeed(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, names = context.Barrier(2), context.Queue()
    arguments = (monolingual(tmp_path / "raw"), str(tmp_path / "data"), barrier, names)
    processes = [context.Process(target=_prepare_at_the_barrier, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    got = {names.get(timeout=240) for _ in processes}
    for process in processes:
        process.join(240)
        assert process.exitcode == 0
    assert sorted(got) == preparations(tmp_path / "data") and len(got) == 1


def test_manifest_describes_the_files_and_what_is_finished_is_reused(tmp_path, caplog):
    dataset, paths = parallel(tmp_path / "raw"), {"data": tmp_path / "data"}
    prepared = prepare(dataset, PLAIN, paths)
    path = prepared.folder / "manifest.json"
    manifest, stamp = json.loads(path.read_text()), path.stat().st_mtime_ns
    written = {str(path.relative_to(prepared.folder)) for path in prepared.folder.rglob("*") if path.is_file()}
    assert written == set(manifest["files"]) | {"manifest.json"}
    for name, of in manifest["files"].items():
        assert file_sha256(prepared.folder / name) == of["sha256"]
    assert manifest["versions"]["fairseq"]
    assert manifest["preprocessing"] == PLAIN | {"min_count": 0}
    caplog.set_level(logging.INFO)
    caplog.clear()
    assert prepare(dataset, PLAIN, paths) == prepared and path.stat().st_mtime_ns == stamp
    assert len(caplog.records) == 1 and "reusing" in caplog.text


def test_every_option_that_matters_changes_the_hash(tmp_path):
    paths = {"data": tmp_path / "data"}
    dataset = parallel(tmp_path / "raw")
    variants = [
        {},
        {"lowercase": True},
        {"min_count": 2},
        {"joined_dictionary": True},
        {"tokenizer": "moses"},
        {"bpe": "characters"},
        {"bpe": "subword_nmt", "bpe_size": 10},
        {"bpe": "subword_nmt", "bpe_size": 11},
        {"bpe": "sentencepiece", "bpe_size": 60},
    ]
    folders = {prepare(dataset, PLAIN | variant, paths).folder for variant in variants}
    assert len(folders) == len(variants)
    # an option without effect is not another preparation
    assert prepare(dataset, PLAIN | {"bpe": "characters", "bpe_size": 99}, paths).folder in folders
    # the raw text is: one word changed in the same file
    dataset = parallel(tmp_path / "raw", test_en=["another line"] * 20)
    assert prepare(dataset, PLAIN, paths).folder not in folders


def test_fairseq_is_not_imported_with_the_module():
    code = "import sys, gpam_suite.data; sys.exit('fairseq' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
