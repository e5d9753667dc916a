"""Numbers as text."""

import pytest

from gpam_suite.common import formatting


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (formatting.number(3.14159), "3.14"),
        (formatting.p_number(0.0004), "< 0.001"),
        (formatting.p_number(0.0124), "0.012"),
        (formatting.p_number(0.05), "0.050"),
        (formatting.p_number(0.0499), "0.0499"),
        (formatting.p_number(0.050004), "0.050004"),
        (formatting.number(-0.001), "0.00"),
        (formatting.number(None), "–"),
        (formatting.signed(0.001), "0.00"),
        (formatting.plus_minus(30.0, 0.25), "30.00 ± 0.25"),
        (formatting.interval(-1.0, 0.4), "[-1.00, 0.40]"),
        (formatting.estimate(-0.8, -2.0, 0.4), "-0.80 [-2.00, 0.40]"),
        (formatting.estimate(0.004, 0.002, 0.0061), "+0.004 [0.002, 0.006]"),
        (formatting.percent(0.00432), "+0.43 %"),
        (formatting.count(39_469_056.0), "39,469,056"),
        (formatting.p_value(0.0004), "p < 0.001"),
        (formatting.p_value(0.0312), "p = 0.031"),
        (formatting.plural(2, "seed"), "2 seeds"),
        (formatting.listed([1, 2, 1]), "1, 2"),
        (formatting.listed([]), "–"),
        (formatting.listed(["a, b", "c"]), "a, b; c"),
    ],
)
def test_text(got, wanted):
    assert got == wanted
