"""Facts of real public data, wherever local copies are at hand."""

import pytest
from data_helpers import PLAIN, mirror, node

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.text.lines import file_sha256, read_lines


def test_wikitext2(tmp_path):
    prepared = prepare(node("wikitext2"), PLAIN, {"data": tmp_path, "mirror": mirror()})
    splits = prepared.manifest["splits"]
    # Merity et al. 2016, table of the data set, with one end-of-line mark a line
    assert {split: counts["lines"] for split, counts in splits.items()} == {"train": 36718, "valid": 3760, "test": 4358}
    assert [prepared.words(split) for split in splits] == [2_088_628, 217_646, 245_569]
    assert splits["train"]["types"] == 33_278
    assert prepared.manifest["dictionary"] == 33_278 + 2  # fairseq's <s> and <pad> beside them
    assert splits["train"]["unk"] == sum(
        line.split().count("<unk>") for line in read_lines(prepared.source_text("train"))
    )
    # the raw text is written as it came
    assert f"sha256:{file_sha256(prepared.source_text('test'))}" in node("wikitext2")["files"]["test"]["checksums"]
    for split, articles in (("train", 600), ("valid", 60), ("test", 60)):  # the articles of the paper's table
        starts = prepared.documents(split)
        assert len(starts) == articles
        assert starts[0] == 0 and starts == sorted(set(starts))
    lines = read_lines(prepared.source_text("test"))
    assert lines[prepared.documents("test")[1]] == " = Du Fu = "


def test_wikitext2_with_a_line_missing_is_refused(tmp_path):
    """Where no checksum is known, the number of lines and tokens decides."""
    dataset = node("wikitext2", expect={"valid": {"tokens": 217_647}})
    with pytest.raises(UsageError, match=r"valid\.txt has 217,646 tokens, wanted 217,647"):
        prepare(dataset, PLAIN, {"data": tmp_path, "mirror": mirror()})


@pytest.mark.parametrize("name", ["multi30k_de_en", "multi30k_en_de"])
def test_multi30k(tmp_path, name):
    prepared = prepare(node(name), PLAIN, {"data": tmp_path, "mirror": mirror()})
    splits = prepared.manifest["splits"]
    assert [splits[split]["lines"] for split in ("train", "valid", "test")] == [29_000, 1_014, 1_000]
    assert all(splits[split]["dropped"] == 0 for split in splits)
    source, target = name.split("_")[1:]
    assert (prepared.source_lang, prepared.target_lang) == (source, target)
    first = {"de": "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt."}
    first["en"] = "A man in an orange hat starring at something."
    assert read_lines(prepared.source_text("test"))[0] == first[source]
    assert read_lines(prepared.reference("test"))[0] == first[target]
