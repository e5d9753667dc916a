"""Text of records, labels and commands on pages and terminals: it is read, and nothing of it acts."""

from pathlib import Path

from record_factory import add_config, make_record, store

from gpam_suite.common.markup import bullets, code, inert, shown
from gpam_suite.report.page import build


def test_nothing_of_a_text_acts_on_a_terminal():
    assert shown("a\x1b[31mred\x07\r\u202eb\ud800\tc\n") == r"a\x1b[31mred\x07\r\u202eb\ud800" + "\tc\n"
    assert shown("größe 实验 p < 0.001 ±") == "größe 实验 p < 0.001 ±"
    assert shown("100\u00a0%\u3000") == "100\u00a0%\u3000"


def test_nothing_of_a_text_is_a_tag_or_ends_a_block():
    assert inert("<script>x</script> p < 0.001\n<!-- -->") == "&lt;script>x&lt;/script> p < 0.001 &lt;!-- -->"
    assert bullets(["<b>\n- second"]) == "- &lt;b> - second\n"
    assert code(["a\n```\n<script>"]) == "````sh\na ``` <script>\n````\n"
    assert code(["python x"]) == "```sh\npython x\n```\n"


def written(results: Path) -> list[str]:
    return [path.read_text() for path in build(results) if path.suffix == ".md"]


def test_no_name_writes_markup_into_a_page_of_results(tmp_path):
    bad = "<script>alert(1)</script> $x^{$\x1b]0;x\x07"
    names = dict.fromkeys(("model_label", "dataset_label", "recipe"), "<script>alert(1)</script> $x^{$")
    record = make_record(experiment=names["recipe"], command=f"train {bad}\n```\n{bad}", **names)
    store(tmp_path, record)
    (tuned,) = store(tmp_path / "tuning", record)
    left_out = written(tmp_path)
    assert any("config.yaml says no fairseq.model.dropout" in page for page in left_out)
    add_config(tuned, fairseq__model__dropout=0.1)
    whole = written(tmp_path)
    assert len(left_out) == len(whole) == 2 and not any("left out" in page for page in whole)
    for page in left_out + whole:
        assert "\x1b" not in page and "\x07" not in page
        before, fence, inside = page.partition("````sh\n")
        commands, end, after = inside.partition("\n````\n")
        assert fence and end and "<script" in commands and "<script" not in before + after
