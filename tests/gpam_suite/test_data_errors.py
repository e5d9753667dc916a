"""Every mistake of a user's is one clear sentence, and leaves no half-made preparation."""

import pytest
from data_helpers import PLAIN, monolingual, node, parallel, preparations, write

from gpam.errors import UsageError
from gpam_suite.data import prepare


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
        ({"name": None}, r"dataset\.name is missing"),
        ({"expect": {"train": {"line": 3}}}, r"dataset\.expect\.train: got 'line'.*did you mean 'lines'"),
        ({"expect": {"dev": {}}}, r"dataset\.expect: got 'dev'"),
        ({"expect": {"train": {"lines": 3}}}, r"train\.de\.txt has 20 lines, wanted 3"),
    ],
)
def test_dataset_node(tmp_path, change, match):
    refused(tmp_path, parallel(tmp_path / "raw") | change, match)


def test_nodes_must_be_mappings(tmp_path):
    refused(tmp_path, "wikitext2", "dataset: got 'wikitext2', wanted a mapping")


def test_missing_file(tmp_path):
    dataset = parallel(tmp_path / "raw")
    (tmp_path / "raw" / "valid.en").unlink()
    refused(tmp_path, dataset, r"valid\.en does not exist")


@pytest.mark.parametrize("content", [b"", b"\n \n\n"])
def test_empty_file(tmp_path, content):
    refused(tmp_path, monolingual(tmp_path / "raw", train_txt=content), r"train\.txt is empty")


def test_not_utf8(tmp_path):
    content = "gut\nschön\n".encode("latin-1")
    refused(tmp_path, monolingual(tmp_path / "raw", test_txt=content), r"test\.txt, line 2: not UTF-8 \(byte 0xf6\)")


def test_parallel_files_of_different_length(tmp_path):
    dataset = parallel(tmp_path / "raw", valid_en=["only one"])
    refused(tmp_path, dataset, r"valid\.de has 20 lines and valid\.en 1;")


def test_no_pair_left(tmp_path):
    dataset = parallel(tmp_path / "raw", train_de=["ein", ""], train_en=["", "two"])
    refused(tmp_path, dataset, "the train text has no usable line")


@pytest.mark.parametrize("symbol", ["<s>", "</s>", "<pad>"])
def test_reserved_symbols(tmp_path, symbol):
    dataset = monolingual(tmp_path / "raw", valid_txt=["fine", f"a {symbol} b"])
    refused(tmp_path, dataset, rf"valid\.txt, line 2: {symbol} is a symbol that fairseq reserves")


def test_data_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"paths\.data: .*file/data cannot be written \(Not a directory\)"):
        prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": tmp_path / "file" / "data"})
    with pytest.raises(UsageError, match=r"paths\.data: /proc cannot be written"):
        prepare(monolingual(tmp_path / "raw"), PLAIN, {"data": "/proc"})
    with pytest.raises(UsageError, match=r"paths\.data is missing"):
        prepare(monolingual(tmp_path / "raw"), PLAIN, {"mirror": None})


def test_mirror_folder_that_does_not_exist(tmp_path):
    refused(tmp_path, node("wikitext2"), r"paths\.mirror: .*nowhere is not a folder", mirror=tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"target": "fr"}, "German"),
        ({"items": 3}, r"dataset\.items: got 3"),
        ({"items": [3, 1]}, r"dataset\.items: got \[3, 1\].*smaller number first"),
        ({"pairs": 0}, r"dataset\.pairs: got 0"),
        ({"seed": "one"}, r"dataset\.seed: got 'one'"),
    ],
)
def test_generated_pairs(tmp_path, change, match):
    small = {"pairs": 5, "valid_pairs": 2, "test_pairs": 2}
    refused(tmp_path, node("cldr_de_en", **(small | change)), match)


def test_generated_prose(tmp_path):
    refused(tmp_path, node("python_docs", words="splitt"), r"dataset\.words: got 'splitt', wanted split or raw")


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
