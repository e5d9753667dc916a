"""Tokens from memory are sacremoses' own tokens; merges from a heap are subword-nmt's own merges."""

import gzip
import io
import random
from collections import Counter

import pytest
from data_helpers import mirror
from hypothesis import given, settings
from hypothesis import strategies as st
from sacremoses import MosesTokenizer as Sacremoses
from subword_nmt.learn_bpe import learn_bpe

from gpam_suite.data.text.merges import merges
from gpam_suite.data.text.moses import MosesNormalizer, MosesTokenizer

PIECES = [
    *"aAbS1,.'\"-`()5ß&…:;/%Ö—’|<>[]$日\u0301",
    " ",
    " ",
    " ",
    "etc.",
    "No.",
    "U.S.",
    "Mr.",
    "..",
    "...",
    "DOTMULTI",
]
TOKENIZERS = {
    (language, hyphens): (Sacremoses(language), MosesTokenizer(language, hyphens=hyphens))
    for language in ("de", "en", "fr", "zh")
    for hyphens in (False, True)
}


def both(line, language, hyphens):
    stock, ours = TOKENIZERS[language, hyphens]
    line = " ".join(line.split())
    return ours.tokenize(line), stock.tokenize(line, aggressive_dash_splits=hyphens, return_str=True)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=16).map("".join), st.sampled_from(sorted(TOKENIZERS)))
def test_tokens_of_odd_lines(line, kind):
    ours, stock = both(line, *kind)
    assert ours == stock


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40), st.sampled_from(sorted(TOKENIZERS)))
def test_tokens_of_any_lines(line, kind):
    ours, stock = both(line, *kind)
    assert ours == stock


@pytest.mark.parametrize(
    "line", ["5' '5", "a ' ' b", "x' 'y 'z", ", a", "5, 5 ,5", "a.' ?", "a \x01 b", "'", "Nr. 5 usw."]
)
def test_tokens_where_words_meet(line):
    for kind in TOKENIZERS:
        ours, stock = both(line, *kind)
        assert ours == stock


@pytest.mark.parametrize(("language", "hyphens"), [("de", False), ("en", True)])
def test_tokens_of_real_text(language, hyphens):
    path = mirror() / "multi30k.de-en" / "raw" / f"train.{language}.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = list(file)[:6000]
    differing = [line for line in lines if (found := both(line, language, hyphens))[0] != found[1]]
    assert differing == []


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("in the U.S.", "in the U.S ."),
        ("und so weiter usw.", "und so weiter usw ."),
        ("it ends ...", "it ends ..."),
        ("it ends.", "it ends ."),
        ("Dr. No", "Dr. No"),
        ("U.S.", "U.S ."),
    ],
)
def test_the_last_full_stop_is_split_off_on_request(line, wanted):
    assert MosesTokenizer("en", last_stop=True).tokenize(line) == wanted


def test_normalisation_reads_a_line_with_its_end():
    """As Perl does: a full stop before a closing quotation mark moves behind it even at the end of a line."""
    assert MosesNormalizer("de").normalize("„Fabrik.“") == '"Fabrik".'
    assert MosesNormalizer("en").normalize("a\x00b\u200bc – d") == "a b c - d"


@pytest.mark.parametrize("seed", range(4))
def test_merges_of_random_words(seed):
    """Few letters make many ties, and pairs that appear anew after they were pruned."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcd", k=draw.randint(1, 9))) for _ in range(3000)]
    counts = Counter({word: draw.choice([1, 1, 1, 2, 3, 50, 1000]) for word in words})
    assert list(merges(counts, 700)) == _by_subword_nmt(counts, 700)


def test_merges_of_real_words():
    counts = Counter()
    for language in ("de", "en"):
        with gzip.open(mirror() / "iwslt14.de-en" / "tok" / f"valid.{language}.gz", "rt", encoding="utf-8") as file:
            for line in file:
                counts.update(line.split())
    assert list(merges(counts, 1500)) == _by_subword_nmt(counts, 1500)


@pytest.mark.parametrize("counts", [{}, {"a": 5}, {"ab": 1}, {"ab": 2}])
def test_merges_end_where_no_pair_is_seen_twice(counts):
    assert list(merges(Counter(counts), 9)) == ([("a", "b</w>")] if counts == {"ab": 2} else [])


def _by_subword_nmt(counts, size):
    codes = io.StringIO()
    learn_bpe([f"{word} {number}\n" for word, number in counts.items()], codes, size, is_dict=True)
    return [tuple(line.split(" ")) for line in codes.getvalue().splitlines()[1:]]
