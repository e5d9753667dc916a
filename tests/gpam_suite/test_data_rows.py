"""Which pairs stay, which are held out; the IWSLT'14 and WMT recipes end to end on archives made here."""

import html
import re

import pytest
from archives import WORDS, iwslt_files, packed, segments, sentence
from data_helpers import node
from hypothesis import example, given
from hypothesis import strategies as st
from local_server import serving
from omegaconf import OmegaConf
from runs import composed
from sacremoses import MosesTokenizer

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.text.lines import read_lines
from gpam_suite.data.text.rows import clean_keeps

RULE = {"least": 1, "most": 175, "ratio": 1.5}


@given(st.integers(0, 260), st.integers(0, 260))
@example(3, 2)  # the ratio itself stays
@example(31, 20)
def test_the_rule_of_clean_corpus(left, right):
    """By its statement: at least 1 and at most 175 words, neither side above 1.5 times the other."""
    wanted = all(1 <= n <= 175 for n in (left, right)) and left / right <= 1.5 and right / left <= 1.5
    assert clean_keeps(RULE, left, right) == wanted


@pytest.fixture(scope="module")
def iwslt_archive():
    files = iwslt_files(1000)
    return files, packed(files)


def small_node(name, url, **archives):
    """The shipped node with the addresses of a server and without the facts of the real corpora."""
    dataset = node(name, expect=None)
    for archive in dataset["archives"].values():
        file = archive["mirror"].rpartition("/")[2]
        archive |= {"urls": [f"{url}/{archives.get(file, file)}"], "checksums": [], "bytes": None}
    for corpora in dataset["corpora"].values():
        for corpus in corpora:
            corpus.pop("lines", None)
    return dataset


def recipe(name, **changes):
    return OmegaConf.to_container(composed(f"recipe={name}").preprocessing) | changes


def moses(line, language, *, hyphens=False):
    tokens = MosesTokenizer(language).tokenize(line, aggressive_dash_splits=hyphens, return_str=True)
    return re.sub(r"(?<=[^ .])\.$", " .", tokens)


def test_iwslt14_as_its_recipe_says(tmp_path, iwslt_archive):
    """The steps of the published recipe, done plainly one after another here, give the same splits and tokens."""
    files, content = iwslt_archive
    with serving() as server:
        server.files = {"/de-en.tgz": content}
        dataset = small_node("iwslt14_en_de", server.address)
        options = recipe("iwslt14_en_de", bpe_size=60)
        prepared = prepare(dataset, options, {"data": tmp_path, "mirror": None})

    train = {}
    for language in ("de", "en"):
        lines = [line for line in files[f"de-en/train.tags.de-en.{language}"] if not re.match("<(url|talk|key)", line)]
        train[language] = [re.sub("</?(title|description)>", "", line).strip() for line in lines]
    tokens = {language: [moses(line, language) for line in lines] for language, lines in train.items()}
    kept = [
        number
        for number, pair in enumerate(zip(tokens["de"], tokens["en"], strict=True))
        if all(1 <= len(side.split()) <= 175 for side in pair)
        and max(len(side.split()) for side in pair) <= 1.5 * min(len(side.split()) for side in pair)
    ]
    assert 100 < len(kept) < len(tokens["de"])
    wanted = {"valid": kept[22::23], "train": [number for k, number in enumerate(kept, 1) if k % 23]}
    for split, numbers in wanted.items():
        for language in ("de", "en"):
            pieces = read_lines(prepared.folder / "bpe" / f"{split}.{language}.txt")
            assert [line.replace("@@ ", "") for line in pieces] == [tokens[language][n].lower() for n in numbers]
            text = read_lines(prepared.folder / "text" / f"{split}.{language}.txt")
            assert [line.strip() for line in text] == [train[language][n] for n in numbers]
    assert prepared.manifest["splits"]["train"]["dropped"] == len(tokens["de"]) - len(kept)

    raw = [
        line.partition("> ")[2].removesuffix(" </seg>")
        for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
        for line in files[f"de-en/IWSLT14.{name}.de-en.en.xml"]
        if line.startswith("<seg")
    ]
    pieces = read_lines(prepared.folder / "bpe" / "test.en.txt")
    wanted = [moses(line.replace("’", "'"), "en").lower() for line in raw]
    assert [line.replace("@@ ", "") for line in pieces] == wanted
    assert any("&amp; amp ;" in line for line in wanted)  # entities are tokenised as they stand, as in the recipe
    assert read_lines(prepared.source_text("test")) == list(map(html.unescape, raw))  # and the text is what is meant
    assert len(raw) == 60


def wmt_files():
    europarl = {f"training/europarl-v7.de-en.{side}": [sentence(side, n) for n in range(900)] for side in WORDS}
    europarl["training/europarl-v7.de-en.de"][100] = ""
    files = {
        "/training-parallel-europarl-v7.tgz": europarl,
        "/training-parallel-commoncrawl.tgz": {
            f"commoncrawl.de-en.{side}": [f"{sentence(side, n)} – well-known" for n in range(60)] for side in WORDS
        },
    }
    for version in ("v9", "v12"):
        name = f"training/news-commentary-{version}.de-en"
        files[f"/training-parallel-nc-{version}.tgz"] = {
            f"{name}.{side}": [f"{version} {sentence(side, n)}" for n in range(40)] for side in WORDS
        }
    files["/dev.tgz"] = {
        "dev/newstest2013-src.en.sgm": segments("en", 30),
        "dev/newstest2013-ref.de.sgm": segments("de", 30, "refset"),
    }
    files["/test-full.tgz"] = {
        "test-full/newstest2014-deen-src.en.sgm": segments("en", 20),
        "test-full/newstest2014-deen-ref.de.sgm": segments("de", 20, "refset"),
    }
    return files


@pytest.fixture
def wmt_server():
    with serving() as server:
        server.files = {name: packed(files) for name, files in wmt_files().items()}
        yield server


def test_wmt14_joins_its_corpora(tmp_path, wmt_server):
    dataset = small_node("wmt14_en_de", wmt_server.address)
    prepared = prepare(dataset, recipe("wmt14_en_de", bpe_size=60), {"data": tmp_path, "mirror": None})
    splits = prepared.manifest["splits"]
    assert splits["train"]["lines"] + splits["train"]["dropped"] == 1000
    assert [splits[split]["lines"] for split in ("valid", "test")] == [30, 20]
    assert prepared.manifest["dictionary"]["source"] == prepared.manifest["dictionary"]["target"]
    text = read_lines(prepared.source_text("train"))
    first = [text.index(line) for line in text if line.startswith("v9") or "well-known" in line]
    assert first and text[-1].startswith("v9") and not any(line.startswith("v12") for line in text)
    pieces = [line.replace("@@ ", "") for line in read_lines(prepared.folder / "bpe" / "train.en.txt")]
    assert any(line.endswith(". - well-known") for line in pieces)  # the dash is normalised, the hyphen is not split
    assert read_lines(prepared.reference("test"))[0] == f"{sentence('de', 1)} it’s"


def test_wmt17_as_its_recipe_says(tmp_path, wmt_server):
    """Every 100th pair is held out before anything is dropped, blank pairs too; then both are cleaned by pieces."""
    dataset = small_node("wmt17_en_de", wmt_server.address)
    prepared = prepare(dataset, recipe("wmt17_en_de", bpe_size=60), {"data": tmp_path, "mirror": None})
    files = wmt_files()
    archives = ["europarl-v7", "commoncrawl", "nc-v12"]
    parts = {
        side: [
            line
            for name in archives
            for member, lines in files[f"/training-parallel-{name}.tgz"].items()
            if member.endswith(side)
            for line in lines
        ]
        for side in WORDS
    }
    assert len(parts["de"]) == 1000
    splits = prepared.manifest["splits"]
    valid = [number for number in range(1000) if number % 100 == 99]
    text = read_lines(prepared.source_text("valid"))
    assert len(text) + splits["valid"]["dropped"] == len(valid)
    assert set(text) <= {parts["en"][number] for number in valid}
    for split in ("train", "valid"):
        sides = [read_lines(prepared.folder / "bpe" / f"{split}.{side}.txt") for side in WORDS]
        for pair in zip(*sides, strict=True):
            lengths = sorted(len(line.split()) for line in pair)
            assert lengths[0] >= 1 and lengths[1] <= 1.5 * lengths[0]
    assert "@-@" in (prepared.folder / "bpe" / "train.en.txt").read_text()
    assert prepared.postprocess("well @-@ known @-@ &amp; so .") == "well-known-& so."


def test_each_part_of_a_corpus_is_parallel(tmp_path, wmt_server):
    """Also where one part has as many lines too few as another has too many."""
    for name, member, change in (
        ("/training-parallel-commoncrawl.tgz", "commoncrawl.de-en.en", lambda lines: lines[:-1]),
        ("/training-parallel-nc-v9.tgz", "training/news-commentary-v9.de-en.en", lambda lines: [*lines, "more"]),
    ):
        files = wmt_files()[name]
        wmt_server.files[name] = packed(files | {member: change(files[member])})
    dataset = small_node("wmt14_en_de", wmt_server.address)
    with pytest.raises(UsageError, match=r"train\.en has 59 lines and train\.de 60;"):
        prepare(dataset, recipe("wmt14_en_de", bpe_size=60), {"data": tmp_path, "mirror": None})


def test_another_number_of_sentences_is_refused(tmp_path, iwslt_archive):
    with serving() as server:
        server.files = {"/de-en.tgz": iwslt_archive[1]}
        dataset = small_node("iwslt14_en_de", server.address)
        paths, options = {"data": tmp_path, "mirror": None}, recipe("iwslt14_en_de", bpe_size=60)
        dataset["corpora"]["test"][0]["lines"] = 11
        with pytest.raises(UsageError, match=r"dev2010\.de-en\.\w+\.xml has 10 sentences, wanted 11"):
            prepare(dataset, options, paths)
        dataset["corpora"]["test"][0]["lines"] = 10
        with pytest.raises(UsageError, match=r"train\.\w+\.txt has [\d,]+ lines, wanted 160,239"):
            prepare(dataset | {"expect": {"train": {"lines": 160239}}}, options, paths)
