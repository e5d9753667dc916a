"""Tables of Markdown: short ones stand open, long ones behind a line."""

from gpam_suite.markup import folded, markdown

HEAD = ("Model", "Score")


def test_a_long_table_is_folded_and_stays_a_table():
    rows = [["softmax", str(number)] for number in range(21)]
    text = folded(HEAD, rows)
    assert text.startswith("<details>\n<summary>All 21 rows</summary>\n\n|")  # without the empty line it is no table
    assert text.endswith("|\n\n</details>\n") and markdown(HEAD, rows) in text


def test_a_short_table_stays_open():
    rows = [["softmax", str(number)] for number in range(20)]
    assert folded(HEAD, rows) == markdown(HEAD, rows)
