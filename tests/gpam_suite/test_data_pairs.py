"""One file of sentence pairs: the split keeps together what shares a sentence, whatever order and file it comes in."""

import pytest
from archives import zipped
from data_helpers import PLAIN, mirror, node, write
from hypothesis import given, settings
from hypothesis import strategies as st
from local_server import serving

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.kinds import pairs
from gpam_suite.data.text.lines import read_lines

SENTENCES = st.text(alphabet="aA b", min_size=1, max_size=3)
SPLIT = {"task": "nmt", "source": "de", "target": "en", "split": {"valid": 3, "test": 3}}
LINES = [f"It is {n // 2}.\tEs ist {n}.\tCC-BY" for n in range(120)]  # two by two they share a sentence


def by_rule(sentence):
    return " ".join(sentence.split()).casefold()


def parts_of(lines):
    return {part: list(zip(lines[part, "de"], lines[part, "en"], strict=True)) for part in ("train", "valid", "test")}


@settings(deadline=None)
@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_no_sentence_stands_in_two_parts(drawn, random):
    """With a few pairs of their own, so that both parts can be filled exactly; the order does not matter."""
    own = [(f"x{n}", f"y{n}") for n in range(12)]
    found = sorted(set(drawn + own))
    parts = parts_of(pairs.split(found, SPLIT))
    assert sorted(pair for part in parts.values() for pair in part) == found
    assert [len(parts[part]) for part in ("valid", "test")] == [3, 3]
    for side in (0, 1):
        seen = [{by_rule(pair[side]) for pair in part} for part in parts.values()]
        assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])
    shuffled = drawn + own + drawn
    random.shuffle(shuffled)
    assert parts_of(pairs.split(sorted(set(shuffled)), SPLIT)) == parts
    turned = pairs.split(found, SPLIT | {"source": "en", "target": "de"})
    assert parts_of(turned) == parts


def test_pairs_belong_together_through_others():
    linked = [("a", "1"), ("b", "1"), ("b", "2"), ("C", "3"), ("c ", "4"), ("d", "5")]
    assert sorted(map(sorted, pairs.groups(linked))) == [
        [("C", "3"), ("c ", "4")],
        [("a", "1"), ("b", "1"), ("b", "2")],
        [("d", "5")],
    ]


def small_node(**changes):
    dataset = node("tatoeba_de_en", expect=None, split={"valid": 6, "test": 6})
    dataset["archives"]["tatoeba"] |= {"checksums": [], "bytes": None}
    dataset["pairs"] |= {"checksums": []} | changes
    return dataset


@pytest.fixture
def server():
    with serving() as served:
        text = "".join(f"{line}\n" for line in LINES + LINES[:9])
        served.files["/deu-eng.zip"] = zipped({"deu.txt": text, "_about.txt": "about\n"})
        yield served


def test_an_archive_and_a_mirror_of_its_texts_give_the_same(tmp_path, server):
    dataset = small_node()
    dataset["archives"]["tatoeba"]["urls"] = [f"{server.address}/deu-eng.zip"]
    downloaded = prepare(dataset, PLAIN, {"data": tmp_path / "a", "mirror": None})
    german, english = ([line.split("\t")[column] for line in LINES] for column in (1, 0))
    for part, lines in {"train": slice(40, None), "valid": slice(0, 20), "test": slice(20, 40)}.items():
        names = {f"{part}_de": german[lines], f"{part}_en": english[lines]}
        write(tmp_path / "mirror" / "tatoeba.de-en", **names)
    texts = {
        side: [name.removesuffix(".gz") for name in names]
        for side, names in node("tatoeba_de_en")["pairs"]["texts"].items()
    }
    paths = {"data": tmp_path / "b", "mirror": tmp_path / "mirror", "offline": True}
    mirrored = prepare(small_node(texts=texts), PLAIN, paths)
    for part in ("text", "bin"):
        for path in (downloaded.folder / part).iterdir():
            assert path.read_bytes() == (mirrored.folder / part / path.name).read_bytes()
    assert downloaded.manifest["fingerprint"] == mirrored.manifest["fingerprint"]
    text = [read_lines(downloaded.source_text(split)) for split in ("train", "valid", "test")]
    assert sorted(line for part in text for line in part) == sorted(german)  # the repeated ones once
    assert [len(part) for part in text] == [108, 6, 6]


@pytest.mark.parametrize(
    ("change", "split", "match"),
    [
        ({"columns": ["en"]}, {}, r"dataset\.pairs\.columns: got \['en'\], wanted a list with de and en"),
        ({"columns": ["en", "de", "by", "x"]}, {}, r"deu\.txt, line 1: 3 column\(s\), wanted 4 separated by tabs"),
        ({"member": "deu.tsv"}, {}, r"deu-eng\.zip has no plain file 'deu\.tsv'; did you mean 'deu\.txt'"),
        ({"checksums": ["sha256:0"]}, {}, r"tatoeba_de_en, from http.*: 120 different pairs with sha256:\w+, wanted"),
        ({"texts": {"de": "a.txt", "en": "b.txt"}}, {}, r"dataset\.pairs\.texts\.de: got 'a\.txt', wanted a list"),
        ({"texts": {"de": []}}, {}, r"dataset\.pairs\.texts: got .* wanted a list of files for each of de and en"),
        ({"archive": "anki"}, {}, r"dataset\.archives\.anki: got None, wanted mirror"),
        ({"colums": []}, {}, r"dataset\.pairs: got .* wanted archive, columns, member"),
        ({}, {"dev": 6}, r"dataset\.split: got .* wanted numbers of pairs for valid and test"),
        ({}, {"test": 0}, r"dataset\.split\.test: got 0, wanted a whole number"),
        ({}, {"test": 119}, r"dataset\.split: got .*119\}, too many for 120 different pairs"),
    ],
)
def test_mistakes_in_the_node(tmp_path, server, change, split, match):
    dataset = small_node(**change)
    dataset["split"] |= split
    dataset["archives"]["tatoeba"]["urls"] = [f"{server.address}/deu-eng.zip"]
    with pytest.raises(UsageError, match=match):
        prepare(dataset, PLAIN, {"data": tmp_path, "mirror": None})


def test_tatoeba(tmp_path):
    """The real pairs: the counts of the node, and no sentence of either language in two parts."""
    dataset = node("tatoeba_en_de")
    prepared = prepare(dataset, PLAIN, {"data": tmp_path, "mirror": mirror(), "offline": True})
    splits = prepared.manifest["splits"]
    assert {split: {"lines": counts["lines"]} for split, counts in splits.items()} == dataset["expect"]
    assert sum(counts["lines"] for counts in splits.values()) == 169_159
    for path in (prepared.source_text, prepared.reference):
        train, valid, test = ({by_rule(line) for line in read_lines(path(split))} for split in splits)
        assert not (train & valid or train & test or valid & test)
