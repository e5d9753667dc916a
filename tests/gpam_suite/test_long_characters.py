"""Language models by character: the ids are the text, cut where it should be, scored in bits per character."""

import math

import pytest
from archives import zipped
from data_helpers import mirror, node
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf
from runs import TINY, composed, places, run_here, sizes

from gpam.errors import UsageError
from gpam_suite.config.compose import check, folder_of
from gpam_suite.data import prepare
from gpam_suite.data.kinds.characters import document_starts, restore, symbol
from gpam_suite.data.text.lines import lines_of
from gpam_suite.records.folder import read_record
from gpam_suite.records.lines import read_scores
from gpam_suite.report.page import build

OPTIONS = {"bpe": "characters"}
# three MediaWiki pages with multi-byte characters; the cuts below fall into the middle of a line and of a character
PAGE = "  <page>\n    <title>Größe {}</title>\n\tA — b  c \n\n  </page>\n"
TEXT = ("<mediawiki>\n" + "".join(PAGE.format(number) for number in range(30)) + "<end>").encode()
SPLIT = {"train": 1000, "valid": 500, "test": len(TEXT) - 1500}


def small(folder, content=TEXT, **changes):
    """The shipped enwik8 node with an archive of ``content`` in a mirror folder."""
    (folder / "mirror" / "enwik8").mkdir(parents=True, exist_ok=True)
    (folder / "mirror" / "enwik8" / "enwik8.zip").write_bytes(zipped({"enwik8": content}))
    dataset = node("enwik8", split=SPLIT, types=len(set(content)), **changes)
    dataset["file"]["checksums"] = []
    return dataset, {"data": folder / "data", "mirror": folder / "mirror"}


def ids_of(prepared, split):
    """Everything binarised of a split as dictionary symbols, read with fairseq alone."""
    import gpam_fairseq  # noqa: F401, I001
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(prepared.bin / "dict.txt"))
    items = data_utils.load_indexed_dataset(str(prepared.bin / split), dictionary)
    return [dictionary[int(token)] for index in range(len(items)) for token in items[index]]


@given(st.binary(max_size=300))
def test_every_byte_has_a_symbol_of_its_own(content):
    assert restore(symbol(byte) for byte in content) == content
    assert len({symbol(byte) for byte in range(256)}) == 256
    assert not any(character.isspace() for byte in range(256) for character in symbol(byte))
    assert b"".join(lines_of(content)) == content


def test_ids_are_the_text_byte_for_byte(tmp_path):
    dataset, paths = small(tmp_path)
    prepared = prepare(dataset, OPTIONS, paths)
    begin = 0
    for split, size in SPLIT.items():
        own = TEXT[begin : begin + size]
        begin += size
        assert restore(ids_of(prepared, split)) == own
        assert prepared.source_text(split).read_bytes() == own
        counts = prepared.manifest["splits"][split]
        assert prepared.words(split) == counts["tokens"] == counts["characters"] == size
        assert counts["types"] == len(set(own)) and counts["unk"] == 0
        assert sum(prepared.words_by_line(split)) == size
        starts, lines = prepared.documents(split), lines_of(own)
        whole = [number for number, line in enumerate(lines) if line == b"  <page>\n"]
        assert starts == sorted({0, *whole}) and len(whole) > 3
    assert prepared.unit == "character"
    assert prepare(dataset, OPTIONS, paths).folder == prepared.folder


@pytest.mark.parametrize(
    ("unit", "starts"),
    [("paragraphs", [0, 4, 6]), ("pages", [0, 2, 6]), (None, [0])],
)
def test_where_documents_begin(unit, starts):
    lines = lines_of(b"a\nb\n<page>\n\nc\n\n  <page>\nd")
    assert document_starts(lines, unit) == starts


def test_an_archive_of_several_files_is_refused(tmp_path):
    dataset, paths = small(tmp_path)
    (paths["mirror"] / "enwik8" / "enwik8.zip").write_bytes(zipped({"enwik8": TEXT, "../second": b"more"}))
    with pytest.raises(UsageError, match="an archive of 2 files, wanted one"):
        prepare(dataset, OPTIONS, paths)


def test_tinyshakespeare(tmp_path):
    prepared = prepare(node("tinyshakespeare"), OPTIONS, {"data": tmp_path, "mirror": mirror()})
    splits = prepared.manifest["splits"]
    assert sum(counts["characters"] for counts in splits.values()) == 1_115_394
    assert sum(counts["lines"] for counts in splits.values()) == 40_000
    whole = b""
    for split, share in (("train", 0.9), ("valid", 0.05), ("test", 0.05)):
        own = prepared.source_text(split).read_bytes()
        assert abs(len(own) / 1_115_394 - share) < 1e-4
        assert restore(ids_of(prepared, split)) == own
        whole += own
        # no speech is cut in two: "NAME:", its lines, a blank line
        assert own.split(b"\n", 1)[0].endswith(b":")
        assert own.endswith(b"\n\n") or split == "test"
        assert len(prepared.documents(split)) == len(own.strip(b"\n").split(b"\n\n"))
    # each cut is the first end of a speech at or behind its share
    for end, share in ((splits["train"]["characters"], 0.9), (1_115_394 - splits["test"]["characters"], 0.95)):
        assert end == whole.index(b"\n\n", int(1_115_394 * share) - 2) + 2


@pytest.mark.parametrize(
    ("change", "options", "match"),
    [
        ({"split": {"train": 1, "valid": 1, "test": 1}}, {}, r"the text has [\d,]+ characters, wanted 3"),
        (
            {"split": {"train": 1, "valid": 1}},
            {},
            r"dataset\.split: got .* wanted the characters of train, valid, test",
        ),
        ({"split": {"train": 0, "valid": 1, "test": 1}}, {}, r"dataset\.split\.train: got 0"),
        ({"types": 3}, {}, r"different characters, wanted 3"),
        ({"documents": "page"}, {}, r"dataset\.documents: got 'page'.*did you mean 'pages'"),
        ({"task": "nmt"}, {}, r"dataset\.task=nmt does not go with dataset\.kind=characters: wanted dataset\.task=lm"),
        ({"file": "enwik8.zip"}, {}, r"dataset\.file: got 'enwik8\.zip', wanted mirror"),
        ({"expect": {}}, {}, r"unknown option dataset\.expect"),
        ({}, {"bpe": "none"}, r"preprocessing\.bpe=none does not go with data set enwik8.*wanted characters"),
        ({}, {"lowercase": True}, r"preprocessing\.lowercase=True does not go with data set enwik8"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, change, options, match):
    dataset, paths = small(tmp_path)
    with pytest.raises(UsageError, match=match) as caught:
        prepare(dataset | change, OPTIONS | options, paths)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("window", [512, -1, "far"])
def test_a_window_must_fit_into_the_length(window):
    check(composed("dataset=tinyshakespeare", "fairseq.task.tokens_per_sample=8192"))  # the length is one setting
    cfg = composed("dataset=tinyshakespeare", f"evaluation.context_window={window}")
    with pytest.raises(UsageError, match=rf"context_window: got '{window}', wanted a whole number from 0 to 511"):
        check(cfg)


def test_a_run_by_character_is_scored_in_bits(tmp_path):
    dataset, paths = small(tmp_path)
    cfg = composed(
        "dataset=enwik8",
        *[option for option in TINY if "bpe_size" not in option],
        *places(tmp_path),
        "++fairseq.task.tokens_per_sample=64",
        "evaluation.context_window=32",
        *sizes("decoder", layers=1, embed_dim=16, ffn_embed_dim=16),
    )
    cfg.paths.mirror = str(paths["mirror"])
    cfg.dataset = OmegaConf.create(dataset)
    run_here(cfg)
    folder = folder_of(cfg)
    record, rows = read_record(folder), read_scores(folder)
    nll = sum(row["nll"] for row in rows)
    assert sum(row["words"] for row in rows) == SPLIT["test"] == record["data"]["counts"]["test"]
    assert record["metrics"]["test_bits_per_character"] == pytest.approx(nll / SPLIT["test"] / math.log(2))
    assert record["metrics"]["test_perplexity"] == pytest.approx(2 ** record["metrics"]["test_bits_per_character"])
    assert record["protocol"]["unit"] == "character"
    build(tmp_path / "results")
    table = (tmp_path / "results" / "README.md").read_text(encoding="utf-8")
    assert "| Test perplexity per character ↓ | Test bits per character ↓ |" in table
    assert f"{record['metrics']['test_bits_per_character']:.3f}" in table
    line = (tmp_path / "results" / "tables" / "enwik8.csv").read_text(encoding="utf-8").splitlines()[0]
    assert line.endswith("test_bits_per_character_mean,test_bits_per_character_sd")
