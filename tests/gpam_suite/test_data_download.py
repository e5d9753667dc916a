"""Public files: mirror before network, checksums, several addresses, clear words without a connection."""

import gzip
import hashlib
from pathlib import Path

import pooch
import pytest
import requests
from data_helpers import CONFIGS, PLAIN, node
from omegaconf import OmegaConf

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.store.download import obtain

TEXT = b"a b\nc\n"
CHECKSUM = f"sha256:{hashlib.sha256(TEXT).hexdigest()}"
FILE = {
    "mirror": "set/train.txt.gz",
    "urls": ["https://one.example/train.txt.gz", "https://two.example/train.txt"],
    "checksums": [CHECKSUM],
}


@pytest.fixture
def network(monkeypatch):
    """A network of the given contents by address; others fail like a machine without a connection."""
    contents: dict[str, bytes] = {}
    asked: list[str] = []

    def retrieve(url, known_hash, fname, path, downloader):
        assert known_hash is None and downloader.kwargs["timeout"]
        asked.append(url)
        if url not in contents:
            raise requests.ConnectionError("no route")
        Path(path).mkdir(parents=True, exist_ok=True)
        (Path(path) / fname).write_bytes(contents[url])

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    contents["asked"] = asked
    return contents


def test_mirror_comes_first(tmp_path, network):
    (tmp_path / "mirror" / "set").mkdir(parents=True)
    (tmp_path / "mirror" / "set" / "train.txt.gz").write_bytes(gzip.compress(TEXT))
    got = obtain(FILE, "set", {"data": tmp_path / "data", "mirror": tmp_path / "mirror"})
    assert got == (TEXT, "mirror:set/train.txt.gz")
    assert network["asked"] == []


def test_mirror_with_other_content_is_refused(tmp_path, network):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.txt.gz").write_bytes(gzip.compress(b"other\n"))
    with pytest.raises(UsageError, match=r"checksum mismatch: .*train\.txt\.gz .*wanted one of sha256:"):
        obtain(FILE, "set", {"data": tmp_path / "data", "mirror": tmp_path})
    assert network["asked"] == []


def test_damaged_archive_is_refused(tmp_path):
    (tmp_path / "set").mkdir()
    content = bytearray(gzip.compress(TEXT * 100))
    content[15] ^= 0xFF
    for damaged in (bytes(content), gzip.compress(TEXT)[:-4], b"no archive"):
        (tmp_path / "set" / "train.txt.gz").write_bytes(damaged)
        with pytest.raises(UsageError, match=r"train\.txt\.gz cannot be read"):
            obtain(FILE, "set", {"data": tmp_path / "data", "mirror": tmp_path})


def test_addresses_are_tried_in_turn_and_the_download_is_kept(tmp_path, network):
    network[FILE["urls"][1]] = TEXT
    paths = {"data": tmp_path, "mirror": None}
    assert obtain(FILE, "set", paths) == (TEXT, FILE["urls"][1])
    assert network["asked"] == FILE["urls"]
    network.pop(FILE["urls"][1])
    assert obtain(FILE, "set", paths) == (TEXT, "earlier download train.txt")


def test_wrong_download_is_not_kept_and_the_next_address_tried(tmp_path, network):
    network[FILE["urls"][0]] = gzip.compress(b"<html>sign in</html>\n")
    network[FILE["urls"][1]] = TEXT
    assert obtain(FILE, "set", {"data": tmp_path})[1] == FILE["urls"][1]
    assert [path.name for path in (tmp_path / "downloads" / "set").iterdir()] == ["train.txt"]


def test_offline_says_how_to_set_the_mirror(tmp_path, network):
    match = r"set/train\.txt\.gz could not be had .*ConnectionError.*paths\.mirror to a folder that holds set/train"
    with pytest.raises(UsageError, match=match):
        obtain(FILE, "set", {"data": tmp_path, "mirror": None})
    with pytest.raises(UsageError, match=r"wikitext-2/train\.txt\.gz could not be had"):
        prepare(node("wikitext2"), PLAIN, {"data": tmp_path / "data", "mirror": None})


def test_no_known_checksum_accepts_any_content(tmp_path, network):
    network[FILE["urls"][0]] = gzip.compress(b"anything\n")
    assert obtain(FILE | {"checksums": None}, "set", {"data": tmp_path})[0] == b"anything\n"


def test_the_id_of_git_is_a_checksum_too(tmp_path, network):
    known = {"checksums": ["sha256:0", "git:ce013625030ba8dba906f756967f9e9ca394464a"]}  # by git hash-object --stdin
    network[FILE["urls"][0]] = gzip.compress(b"hello\n")
    assert obtain(FILE | known, "set", {"data": tmp_path})[0] == b"hello\n"


def test_malformed_files_node(tmp_path):
    dataset = node("wikitext2")
    dataset["files"].pop("valid")
    dataset["files"]["train"] = {"mirror": "x", "urls": [], "checksums": []}
    with pytest.raises(UsageError, match="x could not be had"):
        prepare(dataset, PLAIN, {"data": tmp_path})
    dataset["files"]["train"] = "train.txt"
    with pytest.raises(UsageError, match=r"dataset\.files\.train: got 'train\.txt', wanted mirror"):
        prepare(dataset, PLAIN, {"data": tmp_path})


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_nodes(path):
    """Each names itself after its file, says on line 1 what it is, and has a well-formed checksum for every file."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    dataset = OmegaConf.to_container(OmegaConf.load(path))
    assert dataset["name"] == path.stem
    assert dataset["label"]
    files = dataset.get("files", {}).values()
    files = list(files if dataset["task"] == "lm" else (side for split in files for side in split.values()))
    archives = dataset.get("archives", {})
    for file in [*files, *archives.values()]:
        described = file.get("archive") in archives or file["urls"]
        assert described or "not redistributable" in dataset["licence"] or "Not to be downloaded" in text
        assert all(url.startswith("https://") for url in file["urls"])
        assert file["checksums"] or file["bytes"]  # of the IWSLT14 archive only the size is known
        for checksum in file["checksums"]:
            kind, _, value = checksum.partition(":")
            assert len(value) == {"sha256": 64, "sha1": 40, "git": 40, "md5": 32}[kind]
            int(value, 16)
    whole = all(
        len(archive["urls"]) > 1 and archive["checksums"] and archive.get("bytes") for archive in archives.values()
    )
    whole &= all(len(file["urls"]) > 1 for file in files if not file.get("archive") and file["urls"])
    assert whole != ("# unknown: " in text)  # what is not known is said
    if dataset["kind"] in ("files", "corpora", "pairs"):
        assert dataset["licence"] and dataset["citation"] and dataset["expect"]
