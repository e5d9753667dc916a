"""Published preparations, made again from their sources with this pipeline; every line that differs is explained.

The counts that stand first are those of the table in ``docs/data.md``, which a test makes of them.
"""

import gzip
import html
import re
from collections import Counter

import pytest
from data_helpers import PLAIN, ROOT, mirror, node

from gpam_suite.common.files import file_sha256
from gpam_suite.data import prepare
from gpam_suite.data.binarise import BIN, IDX, binarise, build_dictionary, load_ids
from gpam_suite.data.store.stages import Piece, Stages
from gpam_suite.data.text.counting import count
from gpam_suite.data.text.lines import read_lines
from gpam_suite.data.text.segmentation import Tokenizer, segment
from gpam_suite.data.workers import Workers

TED_SETS = ("dev2010", "tedx.dev2012", "tst2010", "tst2011", "tst2012")
MOSES = {"tokenizer": "moses", "lowercase": True}

IWSLT_LINES = {"valid": 7283, "test": 6750}
# split and language to the tokens that are unknown to the published dictionary
IWSLT_UNKNOWN = {("valid", "de"): 35, ("valid", "en"): 8, ("test", "de"): 103, ("test", "en"): 14}
# language to the lines with a character that is an entity in the XML, and those that end in an abbreviation, a letter
# or a number: what differs without entities, and without ``last_stop``
TALKS = {"de": (3, 16), "en": (5, 15)}
MULTI30K_LINES = {"train": 29_000, "valid": 1014, "test": 1000}
# split and language to the lines that differ with lower case after the tokens, with ``last_stop``, with the quotation
# marks of sacremoses alone; English train is compared with none of these, as German has more to see
MULTI30K = {
    ("train", "de"): (67, 12, 7),
    ("train", "en"): None,
    ("valid", "de"): (0, 0, 1),
    ("valid", "en"): (0, 0, 0),
    ("test", "de"): (1, 1, 0),
    ("test", "en"): (0, 0, 0),
}
MULTI30K_WORDS = {"de": (360_706, 12_828, 12_103), "en": (377_534, 13_308, 12_968)}  # without ends of sentences
# split to lines, tokens, <unk> of WikiText-103, and how many more are <unk> in WikiText-2
WIKITEXT103 = {"valid": (3760, 217_646, 1657, 10_061), "test": (4358, 245_569, 2492, 12_726)}
WIKITEXT2_TRAIN = (36_718, 2_088_628, 33_278, 54_625)  # lines, tokens, types, <unk>


@pytest.fixture
def stages(tmp_path):
    with Workers(1) as workers:
        yield Stages(tmp_path, workers)


def lines(*parts):
    with gzip.open(mirror().joinpath(*parts), "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in file]


def piece(tmp_path, *parts):
    path = tmp_path / "-".join(parts).removesuffix(".gz")
    path.write_bytes(gzip.decompress(mirror().joinpath(*parts).read_bytes()))
    return Piece(path, file_sha256(path))


@pytest.mark.parametrize("language", ["de", "en"])
@pytest.mark.parametrize("split", ["valid", "test"])
def test_iwslt14_sub_words_ids_and_unknowns(tmp_path, stages, split, language):
    """From the published tokens: the published sub-words byte for byte, and with the published dictionary the ids that
    fairseq's own binariser gives, in fairseq's own format."""
    import gpam_fairseq.compat  # noqa: F401

    # isort: split
    from fairseq.binarizer import FileBinarizer, VocabularyDatasetBinarizer
    from fairseq.data import Dictionary

    folder = mirror() / "iwslt14.de-en" / "bpe10k"
    tokens = piece(tmp_path, "iwslt14.de-en", "tok", f"{split}.{language}.gz")
    model = Piece(folder / "code", "published")
    pieces = segment(stages, tokens, "subword_nmt", model, split)
    assert pieces.path.read_bytes() == gzip.decompress((folder / f"{split}.{language}.gz").read_bytes())

    def copied(stage_folder):
        (stage_folder / "dict.txt").write_bytes((folder / f"dict.{language}.txt").read_bytes())
        return {"size": len(load_ids(folder / f"dict.{language}.txt"))}

    dictionary = stages.run("published", {"language": language}, copied)
    assert dictionary.facts["size"] == {"de": 8848, "en": 6632}[language]
    data = binarise(stages, pieces, dictionary, split)
    stock = Dictionary.load(str(folder / f"dict.{language}.txt"))
    FileBinarizer.multiprocess_dataset(
        str(pieces.path), "mmap", VocabularyDatasetBinarizer(stock), str(tmp_path / "stock"), vocab_size=len(stock)
    )
    assert (data.folder / BIN).read_bytes() == (tmp_path / "stock.bin").read_bytes()
    assert (data.folder / IDX).read_bytes() == (tmp_path / "stock.idx").read_bytes()
    assert data.facts["unk"] == IWSLT_UNKNOWN[split, language]
    assert len(read_lines(pieces.path)) == IWSLT_LINES[split]


@pytest.mark.parametrize("language", ["de", "en"])
def test_iwslt14_dictionary_in_its_format_and_order(tmp_path, language):
    """The published counts, put in in another order, give the published file."""
    path = mirror() / "iwslt14.de-en" / "bpe10k" / f"dict.{language}.txt"
    rows = [line.rpartition(" ") for line in read_lines(path)]
    counts = Counter({word: int(number) for word, _, number in sorted(rows)})
    build_dictionary(counts, 0).save(str(tmp_path / "dict.txt"))
    assert (tmp_path / "dict.txt").read_bytes() == path.read_bytes()
    ids = load_ids(path)
    assert [ids[word] for word, *_ in rows] == list(range(4, len(rows) + 4))


def test_iwslt14_lengths_agree_with_the_facts_that_are_checked():
    """160,239 training pairs, none above 175 words on a side: the published lengths count sub-words, which are more."""
    for language, tokens in (("de", 4_035_591), ("en", 3_949_114)):
        lengths = list(map(int, lines("iwslt14.de-en", "bpe10k", f"train.lengths.{language}.gz")))
        assert (len(lengths), sum(lengths)) == (160_239, tokens)
    assert node("iwslt14_de_en")["expect"] == {
        "train": {"lines": 160_239},
        "valid": {"lines": len(lines("iwslt14.de-en", "tok", "valid.de.gz"))},
        "test": {"lines": len(lines("iwslt14.de-en", "tok", "test.de.gz"))},
    }


@pytest.mark.parametrize(("language", "entities", "stops"), [(language, *counts) for language, counts in TALKS.items()])
def test_iwslt14_test_set_from_the_talks(language, entities, stops):
    """From the text of the talks to the published tokens: 6,750 lines, every difference counted and explained.

    1. The recipe tokenises the XML file as it stands, so ``&amp;`` becomes ``&amp; amp ;``. The text of the talks has
       the characters; written as entities again, no line differs.
    2. sacremoses alone leaves the full stop at a last word such as ``U.S.`` or ``10.``; ``last_stop`` splits it.
    """
    raw = [line for name in TED_SETS for line in lines("ted-docs.de-en", f"{name}.{language}.gz")]
    published = lines("iwslt14.de-en", "tok", f"test.{language}.gz")
    straight = [line.replace("’", "'") for line in raw]  # as the recipe does for its test set
    marked = [html.escape(line, quote=False) for line in straight]

    def differing(text, **options):
        """Number of the line to our tokens and the published ones."""
        tokenizer = Tokenizer(MOSES | options, language)
        pairs = zip(map(tokenizer.tokenize, text), published, strict=True)
        return {number: pair for number, pair in enumerate(pairs) if pair[0] != pair[1]}

    assert len(raw) == IWSLT_LINES["test"]
    assert differing(marked, last_stop=True) == {}
    by_entities = differing(straight, last_stop=True)
    assert len(by_entities) == entities
    assert set(by_entities) == {number for number, line in enumerate(straight) if marked[number] != line}
    for ours, theirs in by_entities.values():
        assert ours == re.sub("&amp; (amp|lt|gt) ;", r"&\1;", theirs)
    by_stops = differing(marked)
    assert len(by_stops) == stops
    for ours, theirs in by_stops.values():
        assert ours.endswith(".") and ours[:-1] + " ." == theirs


@pytest.mark.parametrize(("split", "language"), MULTI30K)
def test_multi30k_from_its_raw_text(split, language):
    """From ``raw/`` to ``tok/``: no line differs with lower case first, normalised as Perl does, and the rule for full
    stops that Moses had then. What each of these is for is counted one by one."""
    from sacremoses import MosesPunctNormalizer

    raw = lines("multi30k.de-en", "raw", f"{split}.{language}.gz")
    published = lines("multi30k.de-en", "tok", f"{split}.{language}.gz")

    def differing(text, **options):
        tokenizer = Tokenizer(MOSES | options, language)
        return sum(a != b for a, b in zip(map(tokenizer.tokenize, text), published, strict=True))

    lower = [line.lower() for line in raw]
    assert len(raw) == MULTI30K_LINES[split]
    assert differing(lower, normalise=True) == 0
    if MULTI30K[split, language]:
        assert MULTI30K[split, language] == (
            differing(raw, normalise=True),
            differing(lower, normalise=True, last_stop=True),
            differing(map(MosesPunctNormalizer(language).normalize, lower)),
        )


@pytest.mark.parametrize("split", ["valid", "test"])
def test_wikitext103_counts(tmp_path, stages, split):
    """The counts of the paper's table and of ``<unk>``, and WikiText-2 as the same text with more of them."""
    text = piece(tmp_path, "wikitext-103", f"{split}.txt.gz")
    facts = count(stages, text, split, each_word=False).facts
    *wanted, wanted_more = WIKITEXT103[split]
    assert [facts["lines"], facts["words"], facts["unk"]] == wanted
    assert node("wikitext103")["expect"][split] == dict(zip(("lines", "tokens", "unk"), wanted, strict=True))
    small = count(stages, piece(tmp_path, "wikitext-2", f"{split}.txt.gz"), split, each_word=False).facts
    assert [small["lines"], small["words"]] == wanted[:2]
    more = 0
    for ours, theirs in zip(
        lines("wikitext-103", f"{split}.txt.gz"), lines("wikitext-2", f"{split}.txt.gz"), strict=True
    ):
        for word, other in zip(ours.split(), theirs.split(), strict=True):
            assert other in (word, "<unk>")
            more += word != other
    assert more == wanted_more


def test_wikitext2(tmp_path):
    prepared = prepare(node("wikitext2"), PLAIN, {"data": tmp_path, "mirror": mirror()})
    splits = prepared.manifest["splits"]
    # Merity et al. 2016, table of the data set, with one end-of-line mark a line
    assert tuple(splits["train"][fact] for fact in ("lines", "words", "types", "unk")) == WIKITEXT2_TRAIN
    for split, (number, tokens, unknown, more) in WIKITEXT103.items():
        assert [splits[split][fact] for fact in ("lines", "words", "unk")] == [number, tokens, unknown + more]
    assert prepared.manifest["dictionary"] == 33_278 + 2  # fairseq's <s> and <pad> beside them
    # the raw text is written as it came
    assert f"sha256:{file_sha256(prepared.source_text('test'))}" in node("wikitext2")["files"]["test"]["checksums"]
    for split, articles in (("train", 600), ("valid", 60), ("test", 60)):  # the articles of the paper's table
        starts = prepared.documents(split)
        assert len(starts) == articles
        assert starts[0] == 0 and starts == sorted(set(starts))
    lines = read_lines(prepared.source_text("test"))
    assert lines[prepared.documents("test")[1]] == " = Du Fu = "


def test_multi30k(tmp_path, stages):
    """The node from end to end, and the statistics in its repository: words without ends of sentences."""
    prepared = prepare(node("multi30k_en_de"), PLAIN, {"data": tmp_path, "mirror": mirror()})
    splits = prepared.manifest["splits"]
    assert {split: (counts["lines"], counts["dropped"]) for split, counts in splits.items()} == {
        split: (number, 0) for split, number in MULTI30K_LINES.items()
    }
    assert read_lines(prepared.source_text("test"))[0] == "A man in an orange hat starring at something."
    assert read_lines(prepared.reference("test"))[0] == "Ein Mann mit einem orangefarbenen Hut, der etwas anstarrt."
    for language, words in MULTI30K_WORDS.items():
        for split, number in zip(MULTI30K_LINES, words, strict=True):
            text = piece(tmp_path, "multi30k.de-en", "tok", f"{split}.{language}.gz")
            facts = count(stages, text, split, each_word=False).facts
            assert facts["words"] - facts["lines"] == number


def table() -> str:
    """The counts above as they stand in ``docs/data.md``."""
    rows = ["| what | lines | differ | counts and reasons |", "| :--- | ---: | ---: | :--- |"]

    def row(what: str, number: int, why: str, differ: int = 0) -> None:
        rows.append(f"| {what} | {number:,} | {differ} | {why} |")

    for (split, language), unknown in IWSLT_UNKNOWN.items():
        what = f"IWSLT'14 {split}, {language}: tokens to sub-words and ids"
        row(what, IWSLT_LINES[split], f"{unknown} unknown sub-words")
    for language, (entities, stops) in TALKS.items():
        what, number = f"IWSLT'14 test, {language}: talks to tokens", IWSLT_LINES["test"]
        row(what, number, "with XML entities, as the archive has them")
        row(what, number, "with characters for the entities: `r &amp; d` for `r &amp; amp ; d`", entities)
        row(what, number, "without `last_stop`: `usw.` for `usw .` at the end", stops)
    for (split, language), counts in MULTI30K.items():
        why = "lower case last: {}; with `last_stop`: {}; sacremoses' own normaliser: {}".format(*counts or "---")
        row(f"Multi30k {split}, {language}: raw to tokens", MULTI30K_LINES[split], why if counts else "")
    for language, counts in MULTI30K_WORDS.items():
        for (split, number), words in zip(MULTI30K_LINES.items(), counts, strict=True):
            row(f"Multi30k {split}, {language}: tokens", number, f"{words:,} tokens")
    for split, (number, tokens, unknown, more) in WIKITEXT103.items():
        row(f"WikiText-103 {split}", number, f"{tokens:,} tokens, {unknown:,} `<unk>`")
        row(f"WikiText-2 {split}", number, f"{tokens:,} tokens, {unknown + more:,} `<unk>`")
    number, tokens, types, unknown = WIKITEXT2_TRAIN
    row("WikiText-2 train", number, f"{tokens:,} tokens, {types:,} types, {unknown:,} `<unk>`")
    return "\n".join(rows)


def test_the_page_shows_these_counts():
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- proofs -->\n\n")[2].partition("\n<!-- end of proofs -->")[0]
    assert shown.strip() == table(), f"docs/data.md is stale, wanted between its marks:\n{table()}"
