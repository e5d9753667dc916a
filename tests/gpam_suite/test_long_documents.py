"""Documents joined into pieces, and translations of pieces scored by document and by sentence."""

import gzip
import hashlib
from itertools import pairwise

import pytest
import sacrebleu
from data_helpers import mirror, node
from hypothesis import given
from hypothesis import strategies as st
from local_server import serving
from omegaconf import OmegaConf
from runs import TINY, composed, places, run_here, sizes

from gpam.errors import UsageError
from gpam_suite.config.compose import folder_of
from gpam_suite.data import prepare
from gpam_suite.data.kinds.documents import JOIN, SEPARATOR, pair, pieces, read_plain, read_xml, split_piece
from gpam_suite.data.text.lines import read_lines
from gpam_suite.evaluate.documents import score_pieces
from gpam_suite.records.folder import read_record
from gpam_suite.records.lines import read_scores
from gpam_suite.records.metrics import METRICS
from gpam_suite.report.page import build
from gpam_suite.run.run import run
from gpam_suite.stats.bootstrap import resample

MOSES = {"tokenizer": "moses", "bpe": "subword_nmt", "bpe_size": 80}
GERMAN = [["Ein Hund.", "Er läuft im Park herum."], ["Die Katze & die Maus schlafen."], ["Gut.", "Sehr gut.", "Ja!"]]
ENGLISH = [["A dog.", "It runs around in the park."], ["The cat & the mouse sleep."], ["Good.", "Very good.", "Yes!"]]

sentences = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def numbered(lengths: list[int], word: str) -> list[str]:
    return [" ".join(f"{word}{number}.{i}" for i in range(length)) for number, length in enumerate(lengths)]


@given(sentences, st.randoms(use_true_random=False), st.integers(1, 30))
def test_pieces_are_as_long_as_the_budget_allows(lengths, random, budget):
    source = numbered(lengths, "s")
    target = numbered([random.randint(1, 9) for _ in lengths], "t")
    found = pieces(list(zip(source, target, strict=True)), budget)
    parts = [(a.split(JOIN), b.split(JOIN)) for a, b in found]
    assert [line for a, _ in parts for line in a] == source
    assert [line for _, b in parts for line in b] == target
    for (a, b), (texts_a, texts_b) in zip(found, parts, strict=True):
        assert len(texts_a) == len(texts_b)
        assert len(texts_a) == 1 or max(len(a.split()), len(b.split())) <= budget
    for (a, b), (next_a, next_b) in pairwise(found):
        longer = [one + JOIN + other.split(JOIN)[0] for one, other in ((a, next_a), (b, next_b))]
        assert max(len(line.split()) for line in longer) > budget
    if budget == 1:
        assert len(found) == len(lengths)


@pytest.mark.parametrize(
    ("line", "wanted", "parts"),
    [
        ("a ␞ b c ␞ d", 3, (["a", "b c", "d"], True)),
        ("a␞b", 2, (["a", "b"], True)),
        ("a", 1, (["a"], True)),
        ("a ␞ b", 4, (["a", "b", "", ""], False)),
        ("a ␞ b ␞ ␞ c", 2, (["a", "b c"], False)),
        ("", 2, (["", ""], False)),
        ("␞ ␞", 3, (["", "", ""], True)),
    ],
)
def test_a_piece_is_split_again(line, wanted, parts):
    assert split_piece(line, wanted) == parts


def test_bleu_by_document_and_by_sentence():
    """Against sacreBLEU on texts joined by hand; a wrong separator costs sentences and not documents."""
    reference = ["a b c d e f ␞ g h i j k", "l m n o p ␞ q r s t", "u v w x y z"]
    perfect, _, _, rows = score_pieces(reference, reference, [0, 2], lowercase=False)
    assert perfect["test_bleu"] == pytest.approx(100) and perfect["test_sentence_bleu"] == pytest.approx(100)
    assert (perfect["test_misaligned_pieces"], len(rows)) == (0, 2) and perfect.keys() <= METRICS.keys()
    moved = ["a b c d e f g h i j k", "l m n o p ␞ q r s t", "u v w ␞ x y z"]
    score, _, said, _ = score_pieces(moved, reference, [0, 2], lowercase=False)
    assert score["test_bleu"] == pytest.approx(100)
    assert score["test_misaligned_pieces"] == 2
    assert said == ["a b c d e f g h i j k", "", "l m n o p", "q r s t", "u v w x y z"]
    by_hand = ["a b c d e f", "g h i j k", "l m n o p", "q r s t", "u v w x y z"]
    assert score["test_sentence_bleu"] == sacrebleu.corpus_bleu(said, [by_hand]).score < 95
    worse = ["a b c X e f ␞ g h i j k", "l m n o p ␞ q r s t", "u v w x y z"]
    said = ["a b c X e f g h i j k l m n o p q r s t", "u v w x y z"]
    meant = [[said[0].replace("X", "d"), said[1]]]
    score, _, _, rows = score_pieces(worse, reference, [0, 2], lowercase=False)
    assert score["test_bleu"] == sacrebleu.corpus_bleu(said, meant).score
    assert score["test_chrf"] == sacrebleu.corpus_chrf(said, meant).score
    assert [row["bleu"][:3] for row in rows] == [[20, 20, 19], [6, 6, 6]]


def test_tokenised_documents_are_scored_as_they_are_too():
    reference = ["he said &quot; no &quot; . ␞ she left .", "it rained ."]
    _, protocol, _, _ = score_pieces(reference, reference, [0], lowercase=False)
    assert "tok:none" in protocol["sacrebleu"] and protocol["references"] == "tokenised, lower-cased"


def xml(documents: list[list[str]]) -> bytes:
    body = ""
    for number, document in enumerate(documents):
        body += f'<doc docid="{number}" genre="lectures">\n<url>http://x</url><title>T & t: <i>not a seg</title>\n'
        body += "".join(
            f'<seg id="{line}">  {text.replace("&", "&amp;").replace(" ", "  ")}\n</seg>\n'
            for line, text in enumerate(document, 1)
        )
        body += "</doc>\n"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<mteval>\n<srcset>\n{body}</srcset>\n</mteval>\n'.encode()


def plain(documents: list[list[str]]) -> tuple[bytes, bytes]:
    """Sentences one a line, and the table of documents."""
    table, first = "docid\tfirst_line\tlines\n", 1
    for number, document in enumerate(documents):
        table += f"{number}\t{first}\t{len(document)}\n"
        first += len(document)
    return "".join(f"{line}\n" for document in documents for line in document).encode(), table.encode()


def test_both_formats_hold_the_same_documents(caplog):
    assert read_xml(xml(GERMAN), "x") == read_plain(*plain(GERMAN), "x") == GERMAN
    with pytest.raises(UsageError, match="the two sides differ in their documents"):
        pair(GERMAN, [ENGLISH[1], *ENGLISH[1:]], "x")
    kept = pair([["a", " ", "c"], [""]], [["A", "B", "C"], ["D"]], "x")
    assert kept == [[("a", "A"), ("c", "C")]]
    assert caplog.messages == ["x: 2 pairs with a blank side left out"]


@pytest.mark.parametrize(
    ("read", "contents", "match"),
    [
        (read_xml, [b"<html><p>sign in</p></html>"], r"x: wanted documents \(<doc>\).*found none"),
        (read_xml, [b"<doc id='1'></doc>"], "found none"),
        (read_xml, [b"<seg>a</seg><doc></doc>"], "a <seg> stands before the first <doc>"),
        (read_plain, [b"a\nb\n", b"id\tf\tn\n0\t1\t1\n"], "they have 1 lines, the text has 2"),
        (read_plain, [b"a\nb\n", b"id\tf\tn\n0\t2\t1\n"], "line 2: begins at 2, wanted it at 1"),
        (read_plain, [b"a\nb\n", b"id\tf\tn\n0 1 2\n"], r"documents of x, line 2: got '0 1 2', wanted"),
    ],
)
def test_other_files_are_refused(read, contents, match):
    with pytest.raises(UsageError, match=match):
        read(*contents, "x")


def small(folder, german=GERMAN, english=ENGLISH, address="https://one.example", table="docs.tsv", **changes):
    """A node of the shipped kind over three copies of small documents in a mirror folder."""
    folder.mkdir(parents=True, exist_ok=True)
    sides = {"de": plain(german)[0], "en": plain(english)[0]}
    (folder / "docs.tsv").write_bytes(plain(german)[1])
    entry = {"documents": len(german), "table": table}
    for language, text in sides.items():
        (folder / f"{language}.gz").write_bytes(gzip.compress(text))
        checksum = f"sha256:{hashlib.sha256(text).hexdigest()}"
        urls = [f"{address}/{language}.xml"]
        entry[language] = {"mirror": f"{language}.gz", "urls": urls, "checksums": [checksum]}
    sets = {"train": {"a": entry, "b": entry}, "valid": {"c": entry}, "test": {"d": entry}}
    return node("ted_docs_de_en", **({"sets": sets, "budget": 8} | changes))


def test_pieces_are_prepared_with_their_documents(tmp_path):
    prepared = prepare(small(tmp_path), MOSES, {"data": tmp_path / "data", "mirror": tmp_path})
    assert read_lines(prepared.reference("test")) == [
        "A dog.",
        "It runs around in the park.",
        "The cat & the mouse sleep.",
        "Good. ␞ Very good. ␞ Yes!",
    ]
    assert prepared.documents("test") == [0, 2, 3]
    assert prepared.documents("train") == [0, 2, 3, 4, 6, 7]
    segmented = (prepared.folder / "bpe" / "test.de.txt").read_text(encoding="utf-8").splitlines()
    assert segmented[-1].split().count(SEPARATOR) == 2
    assert prepared.postprocess(segmented[-1]).split(JOIN) == GERMAN[2]
    turned = prepare(small(tmp_path, source="en", target="de"), MOSES, {"data": tmp_path / "data", "mirror": tmp_path})
    assert read_lines(turned.reference("test"))[-1] == JOIN.join(GERMAN[2])


def test_the_same_sentences_in_other_documents_are_prepared_anew(tmp_path):
    paths = {"data": tmp_path / "data", "mirror": tmp_path}
    before = prepare(small(tmp_path), MOSES, paths)
    german, english = ([[*side[0], *side[1]], *side[2:]] for side in (GERMAN, ENGLISH))
    after = prepare(small(tmp_path, german, english), MOSES, paths)
    assert (before.documents("test"), after.documents("test")) == ([0, 2, 3], [0, 3])


def test_the_original_xml_is_downloaded(tmp_path):
    with serving(de_xml=xml(GERMAN), en_xml=xml(ENGLISH)) as server:
        dataset = small(tmp_path, address=server.address)
        there = prepare(dataset, MOSES, {"data": tmp_path / "here", "mirror": tmp_path})
        prepared = prepare(dataset, MOSES, {"data": tmp_path / "there", "mirror": None})
        assert prepared.manifest["checksum"] == there.manifest["checksum"]
        assert prepared.folder.name == there.folder.name  # the same text, wherever it came from
        server.files["/en.xml"] = xml(ENGLISH[:2])
        match = r"dataset\.sets\.train\.a\.en, .*: 2 documents .* wanted one of sha256"
        with pytest.raises(UsageError, match=match):
            prepare(dataset, MOSES, {"data": tmp_path / "again", "mirror": None})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"budget": 0}, r"dataset\.budget \(words of a piece\): got 0, wanted a whole number of at least 1"),
        ({"budgets": 3}, r"unknown option dataset\.budgets.*did you mean 'budget'"),
        ({"task": "lm"}, "dataset.task=lm does not go with dataset.kind=documents: wanted dataset.task=nmt"),
        ({"target": "fr"}, r"dataset\.sets\.train\.a\.fr: got None, wanted mirror"),
        ({"table": 3}, r"dataset\.sets\.train\.a\.table: got .*3.*, wanted mirror"),
        ({"sets": {"train": {"a": 3}}}, r"dataset\.sets\.train\.a: got 3, wanted documents"),
        ({"english": [*ENGLISH[:2], ["Good.", "Very good. Yes!"]]}, r"they have 6 lines, the text has 5"),
        ({"german": [["Ein ␞."]], "english": [["A."]]}, r"a: a sentence holds '␞'"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path, change, match):
    with pytest.raises(UsageError, match=match) as caught:
        prepare(small(tmp_path, **change), MOSES, {"data": tmp_path / "data", "mirror": tmp_path})
    assert "\n" not in str(caught.value)


def test_ted_documents(tmp_path):
    """The talks of the mirror: split by talks, every sentence once, at several budgets."""
    dataset = node("ted_docs_de_en")
    sizes = {}
    for budget in (1, 512):
        prepared = prepare(
            dataset | {"budget": budget}, {"bpe": "none"}, {"data": tmp_path / str(budget), "mirror": mirror()}
        )
        for split, talks, lines in (("train", 34, 4163), ("valid", 8, 887), ("test", 15, 1700)):
            assert len(prepared.documents(split)) == talks
            for language in ("de", "en"):
                text = read_lines(prepared.folder / "text" / f"{split}.{language}.txt")
                assert len(text) == prepared.manifest["splits"][split]["lines"]
                assert sum(line.count(SEPARATOR) + 1 for line in text) == lines
                assert budget == 1 or max(len(line.split()) for line in text) <= budget
                assert all(line == " ".join(line.split()) for line in text)  # as the XML's reader leaves it
        sizes[budget] = prepared.manifest["splits"]["test"]["lines"]
    assert sizes[1] == 1700 and sizes[512] < 100


def test_a_run_on_documents(tmp_path):
    dataset = small(tmp_path / "mirror", german=GERMAN * 6, english=ENGLISH * 6)
    cfg = composed(
        "dataset=ted_docs_de_en",
        *TINY,
        *places(tmp_path),
        *sizes("encoder", "decoder", layers=1, embed_dim=16, ffn_embed_dim=16),
    )
    cfg.paths.mirror = str(tmp_path / "mirror")
    cfg.dataset = OmegaConf.create(dataset)
    for limit in ("fairseq.dataset.max_tokens", "evaluation.max_tokens", "fairseq.task.max_source_positions"):
        narrow = OmegaConf.merge(cfg, OmegaConf.from_dotlist([f"{limit}=9"]))
        with pytest.raises(
            UsageError, match=rf"{limit}=9 is less than the longest (source|target) of .*, or lower dataset\.budget=8"
        ):
            run(narrow)
    run_here(cfg)
    folder = folder_of(cfg)
    record, rows = read_record(folder), read_scores(folder)
    assert [row["document"] for row in rows] == list(range(18))
    metrics = record["metrics"]
    assert 0 <= metrics["test_bleu"] <= 100 and 0 <= metrics["test_sentence_bleu"] <= 100
    assert 0 <= metrics["test_misaligned_pieces"] <= 24
    found = resample(record)
    assert found.unit == "document" and found.score == pytest.approx(metrics["test_bleu"])
    assert (record["protocol"]["unit"], record["protocol"]["budget"]) == ("document", 8)
    hypotheses = (folder / "hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(hypotheses) == 36  # sentences
    references = [sentence for document in ENGLISH * 6 for sentence in document]
    assert metrics["test_sentence_bleu"] == sacrebleu.corpus_bleu(hypotheses, [references]).score
    build(tmp_path / "results")
    page = (tmp_path / "results" / "README.md").read_text(encoding="utf-8")
    assert "| Test BLEU per document ↑ | Test chrF ↑ | Test BLEU per sentence ↑ |" in page
    full = (tmp_path / "results" / "tables" / "ted_docs_de_en.md").read_text(encoding="utf-8")
    assert "Pieces with a wrong number of sentences ↓" in full
