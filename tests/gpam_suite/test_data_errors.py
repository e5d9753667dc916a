"""Every mistake of a user's is one clear sentence, and leaves no half-made preparation."""

import pytest
from data_helpers import PLAIN, monolingual, node, parallel, preparations, write
from omegaconf import OmegaConf

from gpam.errors import UsageError
from gpam_suite.data import prepare

CLEAN = {"of": "tokens", "least": 1, "most": 2, "ratio": 2}


def refused(tmp_path, dataset, match, options=PLAIN, **paths):
    with pytest.raises(UsageError, match=match) as caught:
        prepare(dataset, options, {"data": tmp_path / "data"} | paths)
    assert "\n" not in str(caught.value)
    assert preparations(tmp_path / "data") == []
    assert not list((tmp_path / "data").rglob("*.tmp"))


@pytest.mark.parametrize(
    ("option", "match"),
    [
        (
            {"tokenizer": "mosses"},
            r"preprocessing\.tokenizer: got 'mosses', wanted one of none, moses; did you mean 'moses'",
        ),
        ({"bpe": "subword-nmt"}, r"preprocessing\.bpe: got 'subword-nmt'.*did you mean 'subword_nmt'"),
        ({"lower_case": True}, r"unknown option preprocessing\.lower_case.*did you mean 'lowercase'"),
        ({"lowercase": "yes"}, r"preprocessing\.lowercase: got 'yes', wanted true or false"),
        ({"joined_dictionary": 1}, r"preprocessing\.joined_dictionary: got 1"),
        ({"min_count": -1}, r"preprocessing\.min_count: got -1"),
        ({"min_count": True}, r"preprocessing\.min_count: got True"),
        ({"bpe": "subword_nmt", "bpe_size": 0}, r"preprocessing\.bpe_size \(bpe is subword_nmt\): got 0"),
        ({"bpe": "sentencepiece", "bpe_size": 2.5}, r"preprocessing\.bpe_size.*got 2\.5"),
        ({"bpe": "sentencepiece", "bpe_size": 3}, r"preprocessing\.bpe_size=3 does not suit this text"),
        ({"last_stop": True}, r"preprocessing\.last_stop is part of Moses"),
        ({"clean": {"of": "tokens"}}, r"preprocessing\.clean: got .*wanted least, most, of, ratio, or null"),
        ({"clean": CLEAN | {"of": "words"}}, r"preprocessing\.clean\.of: got 'words'"),
        ({"clean": CLEAN | {"least": 3}}, r"preprocessing\.clean\.most: got 2"),
        ({"clean": CLEAN | {"ratio": 0.5}}, r"preprocessing\.clean\.ratio: got 0\.5"),
    ],
)
def test_preprocessing(tmp_path, option, match):
    refused(tmp_path, monolingual(tmp_path / "raw"), match, PLAIN | option)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"task": "mt"}, r"dataset\.task: got 'mt'"),
        ({"kind": "locale"}, r"dataset\.kind: got 'locale'.*did you mean 'local'"),
        ({"folders": "x"}, r"unknown option dataset\.folders.*did you mean 'folder'"),
        ({"folder": "???"}, r"dataset\.folder is missing.*dataset\.folder=\.\.\."),
        ({"folder": "/no/such/folder"}, r"dataset\.folder: /no/such/folder is not a folder"),
        ({"source": "???"}, r"dataset\.source is missing"),
        ({"source": "en"}, r"both 'en'"),
        ({"name": "../out"}, r"dataset\.name: got '\.\./out'"),
        *(({key: None}, rf"dataset\.{key} is missing") for key in ("name", "task", "kind")),
        ({"expect": {"train": {"line": 3}}}, r"dataset\.expect\.train: got 'line'.*did you mean 'lines'"),
        ({"expect": {"train": {"lines": "abc"}}}, r"dataset\.expect\.train\.lines: got 'abc', wanted a whole number"),
        ({"expect": {"dev": {}}}, r"dataset\.expect: got 'dev'"),
        ({"expect": {"train": {"lines": 3}}}, r"train\.de\.txt has 20 lines, wanted 3"),
    ],
)
def test_dataset_node(tmp_path, change, match):
    refused(tmp_path, parallel(tmp_path / "raw") | change, match)


@pytest.mark.parametrize(
    ("name", "option", "value", "match"),
    [
        ("iwslt14_en_de", "archives", "a.tgz", r"dataset\.archives: got 'a.tgz', wanted a mapping"),
        ("iwslt14_en_de", "corpora.test", 3, r"dataset\.corpora\.test: got 3, wanted a list"),
        ("iwslt14_en_de", "corpora.test", [], r"dataset\.corpora\.test: got none, wanted at least one corpus"),
        ("iwslt14_en_de", "corpora.test.0.en", 3, r"dataset\.corpora\.test\[0\]: got .* each a text"),
        ("wmt14_en_de", "corpora.train.0.lines", "x", r"dataset\.corpora\.train\[0\]\.lines: got 'x', wanted a whole"),
        ("wikitext2", "files.train.checksums", [1], r"dataset\.files\.train\.checksums: got \[1\], wanted texts"),
        ("wikitext2", "files.train.bytes", "abc", r"dataset\.files\.train\.bytes: got 'abc', wanted a whole number"),
        ("ted_docs_de_en", "sets", 3, r"dataset\.sets: got 3, wanted a mapping"),
        ("ted_docs_de_en", "sets", [], r"dataset\.sets: got \[\], wanted a mapping"),
        ("tatoeba_de_en", "pairs.archive", ["a"], r"dataset\.pairs\.archive: got '\['a'\]', wanted a text"),
        ("tatoeba_de_en", "pairs.columns", [["de"], "en"], r"dataset\.pairs\.columns: got '\['de'\]', wanted a text"),
        ("ted_docs_de_en", "sets.train", 3, r"dataset\.sets\.train: got 3, wanted a mapping"),
    ],
)
def test_what_is_inside_a_public_data_set_has_its_type(tmp_path, name, option, value, match):
    dataset = OmegaConf.create(node(name))
    OmegaConf.update(dataset, option, value, merge=False, force_add=True)
    refused(tmp_path, dataset, match)


def test_nodes_must_be_mappings(tmp_path):
    refused(tmp_path, "wikitext2", "dataset: got 'wikitext2', wanted a mapping")


def test_missing_file(tmp_path):
    dataset = parallel(tmp_path / "raw")
    (tmp_path / "raw" / "valid.en").unlink()
    refused(tmp_path, dataset, r"valid\.en does not exist")
    (tmp_path / "raw" / "valid.en").mkdir()
    refused(tmp_path, dataset, r"valid\.en is a folder, wanted a text file")


@pytest.mark.parametrize(
    ("node", "files", "match"),
    [
        (monolingual, {"train_txt": b""}, r"train\.txt is empty"),
        (monolingual, {"train_txt": b"\n \n\n"}, r"train\.txt is empty"),
        (monolingual, {"test_txt": b"gut\nsch\xf6n\n"}, r"test\.txt, line 2: not UTF-8 \(byte 0xf6\)"),
        (parallel, {"valid_en": ["only one"]}, r"valid\.de has 20 lines and valid\.en 1;"),
        (parallel, {"train_de": ["ein", ""], "train_en": ["", "two"]}, "the train text has no usable line"),
        *(
            (monolingual, {"valid_txt": ["fine", f"a {symbol} b"]}, rf"valid\.txt, line 2: {symbol} is a symbol that")
            for symbol in ("<s>", "</s>", "<pad>")
        ),
    ],
)
def test_texts_that_do_not_suit(tmp_path, node, files, match):
    refused(tmp_path, node(tmp_path / "raw", **files), match)


def test_data_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"paths\.data: .*file/data cannot be written \(Not a directory\)"):
        prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": tmp_path / "file" / "data"})
    with pytest.raises(UsageError, match=r"paths\.data: /proc cannot be written"):
        prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": "/proc"})
    with pytest.raises(UsageError, match=r"paths\.data is missing"):
        prepare(monolingual(tmp_path / "raw"), PLAIN, {"mirror": None})
    with pytest.raises(UsageError, match=r"paths\.workers: got 0"):
        prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": tmp_path / "data", "workers": 0})


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("cldr_de_en", {"target": "fr"}, "German"),
        ("cldr_de_en", {"items": 3}, r"dataset\.items: got 3"),
        ("cldr_de_en", {"items": [3, 1]}, r"dataset\.items: got \[3, 1\].*smaller number first"),
        ("cldr_de_en", {"pairs": 0}, r"dataset\.pairs: got 0"),
        ("cldr_de_en", {"seed": "one"}, r"dataset\.seed: got 'one'"),
        ("python_docs", {"words": "splitt"}, r"dataset\.words: got 'splitt', wanted split or raw"),
        ("iwslt14_en_de", {"corpora": {"train": []}}, r"dataset\.corpora: got \['train'\], wanted .* for test, train"),
        ("iwslt14_en_de", {"hold_out": 1}, r"dataset\.hold_out: got 1"),
        ("iwslt14_en_de", {"archives": {}}, r"dataset\.archives\.iwslt14: got None, wanted mirror"),
        ("iwslt14_en_de", {"task": "lm"}, r"dataset\.task=lm does not go with dataset\.kind=corpora"),
        (
            "python_docs",
            {"task": "nmt"},
            r"task=nmt does not go with dataset\.kind=python_docs: wanted dataset\.task=lm",
        ),
        ("cldr_de_en", {"task": "lm"}, r"task=lm does not go with dataset\.kind=cldr_de_en: wanted dataset\.task=nmt"),
        (
            "multi30k_de_en",
            {"documents": "wikitext"},
            r"dataset\.documents=wikitext does not go with dataset\.task=nmt",
        ),
        ("local_lm", {"task": "recall"}, r"dataset\.task=recall does not go with dataset\.kind=local: wanted a kind"),
        ("wikitext2", {"files": {"train": "train.txt"}}, r"dataset\.files\.train: got 'train\.txt', wanted mirror"),
    ],
)
def test_shipped_nodes_that_were_changed(tmp_path, name, change, match):
    small = {"pairs": 5, "valid_pairs": 2, "test_pairs": 2} if name == "cldr_de_en" else {}
    refused(tmp_path, node(name, **(small | change)), match, offline=True)


def test_mirror_folder_that_does_not_exist(tmp_path):
    refused(tmp_path, node("wikitext2"), r"paths\.mirror: .*nowhere is not a folder", mirror=tmp_path / "nowhere")


def test_the_penn_treebank_is_the_users_own_copy(tmp_path):
    """Its text may not be passed on: what to put where is said, and another text is refused."""
    wanted = (
        r"^ptb/ptb\.train\.txt could not be had \(it has no public address\): "
        r"set paths\.mirror to a folder that holds ptb/ptb\.train\.txt$"
    )
    refused(tmp_path, node("ptb"), wanted, mirror=None)
    write(tmp_path / "mirror" / "ptb", **{f"ptb_{split}_txt": ["no treebank"] for split in ("train", "valid", "test")})
    refused(
        tmp_path,
        node("ptb"),
        r"^checksum mismatch: .*ptb\.train\.txt .* has md5:\w+, wanted",
        mirror=tmp_path / "mirror",
    )
