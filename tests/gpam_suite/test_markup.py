"""Text of records, labels and commands on pages and terminals: it is read, and nothing of it acts."""

from record_factory import make_record, store, tabulate

from gpam_suite.common.markup import bullets, code, inert, shown


def test_nothing_of_a_text_acts_on_a_terminal():
    assert shown("a\x1b[31mred\x07\r\u202eb\ud800\tc\n") == r"a\x1b[31mred\x07\r\u202eb\ud800" + "\tc\n"
    assert shown("größe 实验 p < 0.001 ±") == "größe 实验 p < 0.001 ±"


def test_nothing_of_a_text_is_a_tag_or_ends_a_block():
    assert inert("<script>x</script> p < 0.001\n<!-- -->") == "&lt;script>x&lt;/script> p < 0.001 &lt;!-- -->"
    assert bullets(["<b>\n- second"]) == "- &lt;b> - second\n"
    assert code(["a\n```\n<script>"]) == "````sh\na ``` <script>\n````\n"
    assert code(["python x"]) == "```sh\npython x\n```\n"


def test_a_record_writes_no_markup_into_its_page(tmp_path):
    bad = "<script>alert(1)</script>\x1b]0;x\x07"
    record = make_record(model_label=bad, dataset_label=bad, command=f"train {bad}\n```\n{bad}", experiment="small")
    store(tmp_path, record)
    page = tabulate(tmp_path)[0].read_text()
    assert "\x1b" not in page and "\x07" not in page
    before, fence, inside = page.partition("````sh\n")
    assert "<script" not in before and fence and "\n````\n" in inside
