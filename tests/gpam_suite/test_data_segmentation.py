"""Tokenisation and sub-word segmentation: reversible, learnt on the training text only, true to published files."""

import pytest
from data_helpers import PLAIN, monolingual, parallel

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.text.lines import read_lines
from gpam_suite.data.text.segmentation import Tokenizer, undo_segmentation

BPE = [
    {"bpe": "none"},
    {"bpe": "characters"},
    {"bpe": "subword_nmt", "bpe_size": 12},
    {"bpe": "sentencepiece", "bpe_size": 60},
]
# unseen words and characters, the joiner by itself, several spaces, a replaced word
TRICKY = ["a zebra's  naïve 東京 dog-sled @ 1,000.50 <unk> runs .", "@@ dog", "x"]


@pytest.mark.parametrize("bpe", BPE, ids=lambda option: option["bpe"])
def test_round_trip(tmp_path, bpe):
    prepared = prepare(monolingual(tmp_path / "raw", test_txt=TRICKY), PLAIN | bpe, {"data": tmp_path / "data"})
    segmented = read_lines(prepared.folder / "bpe" / "test.txt")
    assert [prepared.postprocess(line) for line in segmented] == [" ".join(line.split()) for line in TRICKY]
    tokens = prepared.manifest["splits"]["test"]["tokens"]
    assert tokens == sum(len(line.split()) + 1 for line in segmented)
    assert prepared.words("test") == sum(len(line.split()) + 1 for line in TRICKY)  # not of the sub-words


def test_unk_mark_stays_whole_and_is_not_learnt_from(tmp_path):
    text = ["<unk> <unk> dog", "<unk> dogs"] * 10
    options = PLAIN | {"bpe": "subword_nmt", "bpe_size": 5}
    prepared = prepare(monolingual(tmp_path / "raw", train_txt=text), options, {"data": tmp_path / "data"})
    assert not any("k" in line for line in read_lines(prepared.folder / "bpe" / "codes.txt"))
    assert prepared.manifest["splits"]["train"]["unk"] == 30


@pytest.mark.parametrize(
    ("kind", "hypothesis", "wanted"),
    [
        ("subword_nmt", "ein Hu@@ nd l@@ äuft@@", "ein Hund läuft"),  # cut off inside a word
        ("subword_nmt", "a@@@ b", "a@b"),
        ("sentencepiece", "▁ein ▁Hu nd", "ein Hund"),
        ("characters", "e i n ▁ H u n d", "ein Hund"),
        ("none", "ein Hund", "ein Hund"),
    ],
)
def test_undoing_a_hypothesis(kind, hypothesis, wanted):
    assert undo_segmentation(hypothesis, kind) == wanted


@pytest.mark.parametrize(
    ("bpe", "line"),
    [({"bpe": "characters"}, "a▁b"), ({"bpe": "sentencepiece", "bpe_size": 60}, "a ▁b")],
    ids=["characters", "sentencepiece"],
)
def test_marks_in_the_text_are_refused(tmp_path, bpe, line):
    dataset = monolingual(tmp_path / "raw", valid_txt=["fine", line])
    with pytest.raises(UsageError, match=r"valid\.txt, line 2: .*cannot be undone"):
        prepare(dataset, PLAIN | bpe, {"data": tmp_path / "data"})


def test_moses_is_undone_in_each_language(tmp_path):
    english = ['"It\'s 5% off," he said (twice) & left.', "A well-known dog [sic] didn't run."]
    german = ["„Das ist's\", sagte er (zweimal) & ging.", "Ein Hund lief z. B. 3,5 km."]
    dataset = parallel(tmp_path / "raw", test_en=english, test_de=german)
    options = PLAIN | {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_size": 12}
    prepared = prepare(dataset, options, {"data": tmp_path / "data"})
    segmented = read_lines(prepared.folder / "bpe" / "test.en.txt")
    assert "&quot;" in undo_segmentation(segmented[0], "subword_nmt")  # escaped, as in the published preparations
    assert [prepared.postprocess(line) for line in segmented] == english
    assert read_lines(prepared.reference("test")) == english


def test_lower_case_changes_the_input_and_not_the_reference(tmp_path):
    dataset = parallel(tmp_path / "raw", test_en=["A Dog", "ÄÖ"], test_de=["Ein Hund", "ÄÖ"])
    prepared = prepare(dataset, PLAIN | {"lowercase": True}, {"data": tmp_path / "data"})
    assert read_lines(prepared.folder / "bpe" / "test.en.txt") == ["a dog", "äö"]
    assert read_lines(prepared.reference("test")) == ["A Dog", "ÄÖ"]


@pytest.mark.parametrize(
    ("options", "language", "line", "wanted"),
    [
        ({"tokenizer": "none"}, None, "  a\u00a0b \t c ", "a b c"),
        ({"last_stop": True}, "en", "in the U.S.", "in the U.S ."),
        ({"last_stop": True}, "en", "und so weiter usw.", "und so weiter usw ."),
        ({"last_stop": True}, "en", "it ends ...", "it ends ..."),
        ({"last_stop": True}, "en", "it ends.", "it ends ."),
        ({"last_stop": True}, "en", "Dr. No", "Dr. No"),
        ({"last_stop": True}, "en", "U.S.", "U.S ."),
        # as Perl does: a full stop before a closing quotation mark moves behind it even at the end of a line
        ({"normalise": True}, "de", "„Fabrik.“", "&quot; Fabrik &quot; ."),
        ({"normalise": True}, "en", "a\x00b\u200bc – d", "a b c - d"),
    ],
)
def test_tokens_of_a_line(options, language, line, wanted):
    assert Tokenizer(PLAIN | {"tokenizer": "moses"} | options, language).tokenize(line) == wanted


@pytest.mark.parametrize("code", ["fr", "fr-CA", "fr_CA", "FR"])
def test_moses_rules_of_a_language_are_those_of_its_regions(code):
    french, line = Tokenizer(PLAIN | {"tokenizer": "moses"}, code), "L'homme d'aujourd'hui."
    assert french.tokenize(line) == "L&apos; homme d&apos; aujourd&apos; hui ."
    assert french.detokenize(french.tokenize(line)) == line


@pytest.mark.parametrize(("line", "merges"), [("a <unk> b", []), ("ab", []), ("ab ab", ["a b</w>"])])
def test_merges_end_where_no_pair_is_seen_twice(tmp_path, line, merges):
    options = PLAIN | {"bpe": "subword_nmt", "bpe_size": 9}
    prepared = prepare(monolingual(tmp_path / "raw", train_txt=[line]), options, {"data": tmp_path / "data"})
    assert read_lines(prepared.folder / "bpe" / "codes.txt")[1:] == merges


def test_merges_are_learnt_on_the_training_text_only(tmp_path):
    options = PLAIN | {"bpe": "subword_nmt", "bpe_size": 12}
    texts = {"one": ["cats dogs"], "two": ["zzz zzz"] * 99}
    codes = []
    for name, text in texts.items():
        prepared = prepare(monolingual(tmp_path / name, test_txt=text), options, {"data": tmp_path / "data"})
        codes.append(read_lines(prepared.folder / "bpe" / "codes.txt"))
        assert "@@" in read_lines(prepared.folder / "bpe" / "test.txt")[0]
    assert codes[0] == codes[1] and len(codes[0]) == 1 + 12  # a version line, then the merges
