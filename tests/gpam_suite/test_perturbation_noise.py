"""Noise in a line of words: what it keeps, what it changes, how often, and that seeds repeat it."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpam_suite.inside.perturb.noise import NOISE, alphabet, changed, dropped, edited, noisy, swapped

LETTERS = "abcdefghij"
LINE = "  Zwei  Männer\tstehen am Herd und bereiten <unk> Essen zu , 12 Uhr . "
LONG = " ".join(f"{one}{two}{three}" for one in "klmnopqrst" for two in "aeiou" for three in "uvwxyz")


@pytest.mark.parametrize("kind", NOISE)
@given(line=st.text(alphabet="aBß ,1<>\t\u00a0\u2028"), rate=st.floats(0, 1), seed=st.integers())
def test_any_line(kind, line, rate, seed):
    found = NOISE[kind](line, rate, Random(seed), LETTERS)
    assert found == NOISE[kind](line, rate, Random(seed), LETTERS)
    assert bool(found.strip()) == bool(line.strip())
    assert NOISE[kind](line, 0, Random(seed), LETTERS) == line
    if not line.strip():
        assert found == line
    if kind != "dropped":
        assert len(found.split()) == len(line.split())
    if kind == "swapped":
        assert sorted(found.split()) == sorted(line.split())


def _distance(one, other):
    """Damerau's: insertions, deletions, replacements and swaps of neighbours."""
    rows = [[max(i, j) for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            rows[i][j] = min(rows[i - 1][j], rows[i][j - 1]) + 1
            rows[i][j] = min(rows[i][j], rows[i - 1][j - 1] + (one[i - 1] != other[j - 1]))
            if i > 1 and j > 1 and one[i - 1] == other[j - 2] and one[i - 2] == other[j - 1]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[-1][-1]


def test_every_word_gets_one_edit_of_its_letters():
    found = edited(LINE, 1.0, Random(3), LETTERS)
    kept = {",", "12", ".", "<unk>"}
    for before, after in zip(LINE.split(), found.split(), strict=True):
        assert _distance(before, after) == (before not in kept), (before, after)
    assert [gap for gap in LINE if gap.isspace()] == [gap for gap in found if gap.isspace()]


def test_all_four_edits_happen_and_a_word_never_vanishes():
    lengths, letters = set(), set()
    for seed in range(60):
        after = edited("word", 1.0, Random(seed), LETTERS)
        lengths.add(len(after))
        letters.add(("swap" if sorted(after) == sorted("word") else "replaced") if len(after) == 4 else "")
        assert len(edited("I", 1.0, Random(seed), LETTERS)) in (1, 2)
        assert edited("aa", 1.0, Random(seed), "a") in ("a", "aaa")  # neither a swap nor a replacement would show
    assert lengths == {3, 4, 5} and letters == {"swap", "replaced", ""}


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_the_rate_is_the_share(rate):
    words = len(LONG.split())
    lines = {kind: [NOISE[kind](LONG, rate, Random(seed), LETTERS) for seed in range(60)] for kind in NOISE}
    share = {kind: sum(changed(LONG, line) for line in found) / words / 60 for kind, found in lines.items()}
    assert share["characters"] == pytest.approx(rate, rel=0.1)
    assert share["dropped"] == pytest.approx(rate, rel=0.1)
    assert share["swapped"] == pytest.approx(2 * rate / (1 + rate), rel=0.1)


def test_a_larger_rate_does_more_of_the_same():
    few, many = (edited(LONG, rate, Random(5), LETTERS).split() for rate in (0.1, 0.3))
    before = LONG.split()
    assert all(more == less for old, less, more in zip(before, few, many, strict=True) if less != old)
    few, many = (set(dropped(LONG, rate, Random(5)).split()) for rate in (0.1, 0.3))
    assert many < few


def test_swaps_are_of_neighbours():
    assert swapped("a b  c\td e", 1.0, Random(1)) == "b a  d\tc e"


def test_one_word_always_stays():
    assert {dropped(" a b", 1.0, Random(seed)) for seed in range(20)} == {" a ", " b"}


def test_letters_are_those_of_the_text():
    assert alphabet(["Ää b" * 1200, "1 é"]) == "bä"
    assert alphabet(["AB C", "A"]) == "ABC"
    assert alphabet(["12 ."]) == ""


def test_models_and_rates_share_the_noise_and_texts_do_not():
    lines, share = noisy([LONG, LONG], "characters", 0.3, 7, LETTERS)
    assert (lines, share) == noisy([LONG, LONG], "characters", 0.3, 7, LETTERS)
    assert lines[0] != lines[1] and share == pytest.approx(0.3, abs=0.05)
    assert noisy([LONG], "characters", 0.3, 8, LETTERS)[0] != lines[:1]
    assert noisy(["a b\nc\n\nd e\n"], "dropped", 1.0, 7, LETTERS)[0][0].count("\n") == 4
