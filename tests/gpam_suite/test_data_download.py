"""Public files: mirror before network, checksums, addresses in turn, cut connections, a full disk; against a server on
this machine."""

import bz2
import contextlib
import gzip
import hashlib
import logging
import lzma
import multiprocessing
import os
import time
from types import SimpleNamespace

import pytest
from data_helpers import CONFIGS, node
from local_server import serving
from runs import composed

from gpam.errors import UsageError
from gpam_suite.data.store import download
from gpam_suite.data.store.download import _is_offline, obtain, obtain_file

TEXT = b"a b\nc\n"
CONTENT = bytes(range(256)) * 2000
SHA256, TEXT_SHA256 = (f"sha256:{hashlib.sha256(content).hexdigest()}" for content in (CONTENT, TEXT))


@pytest.fixture(autouse=True)
def no_waiting_small_blocks(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(download, "_BLOCK", 10_000)


@pytest.fixture
def server():
    with serving(a_bin=CONTENT, t_gz=gzip.compress(TEXT)) as served:
        yield served


def text(*urls, checksums=(TEXT_SHA256,)):
    return {"mirror": "set/train.txt.gz", "urls": list(urls), "checksums": checksums}


def archive(*urls, **facts):
    return {"mirror": "set/a.bin", "urls": list(urls), "checksums": [SHA256], "bytes": len(CONTENT)} | facts


def got(tmp_path, node, **paths):
    """Where an archive came from, after a look at what came."""
    path, digest, origin = obtain_file(node, "set", {"data": tmp_path} | paths, archive=True)
    assert path.read_bytes() == CONTENT and f"sha256:{digest}" == SHA256
    assert not list(path.parent.glob("*.part*"))
    return origin


def in_a_mirror(folder, content):
    (folder / "set").mkdir(parents=True, exist_ok=True)
    (folder / "set" / "train.txt.gz").write_bytes(content)
    return {"data": folder / "data", "mirror": folder}


def test_the_mirror_comes_first_and_must_be_right(tmp_path, server):
    node = text(f"{server.address}/t.gz")
    assert obtain(node, "set", in_a_mirror(tmp_path, gzip.compress(TEXT))) == (TEXT, "mirror:set/train.txt.gz")
    with pytest.raises(UsageError, match=r"checksum mismatch: .*train\.txt\.gz .*wanted one of sha256:"):
        obtain(node, "set", in_a_mirror(tmp_path, gzip.compress(b"other\n")))
    assert server.asked == []


def test_damaged_archive_is_refused(tmp_path):
    content = bytearray(gzip.compress(TEXT * 100))
    content[15] ^= 0xFF
    for damaged in (bytes(content), gzip.compress(TEXT)[:-4]):
        with pytest.raises(UsageError, match=r"train\.txt\.gz cannot be read"):
            obtain(text(), "set", in_a_mirror(tmp_path, damaged))


def test_what_is_packed_is_told_by_its_content(tmp_path):
    for packed in (TEXT, gzip.compress(TEXT), bz2.compress(TEXT), lzma.compress(TEXT)):
        assert obtain(text(), "set", in_a_mirror(tmp_path, packed))[0] == TEXT


def test_two_files_whose_addresses_end_alike_are_two(tmp_path, server):
    """And an address may have a query behind its name."""
    server.files |= {"/de/t.txt?download=1": b"eins\n", "/en/t.txt?download=1": gzip.compress(b"one\n")}
    for language, content in (("de", b"eins\n"), ("en", b"one\n")):
        node = {"mirror": f"set/train.{language}", "urls": [f"{server.address}/{language}/t.txt?download=1"]}
        assert obtain(node, "set", {"data": tmp_path})[0] == content
        as_mirror = {"data": tmp_path / "other", "mirror": tmp_path / "downloads", "offline": True}
        assert obtain(node, "set", as_mirror)[0] == content


def test_addresses_are_tried_in_turn_and_the_download_is_kept(tmp_path, server, caplog):
    caplog.set_level(logging.INFO)
    urls = ["http://127.0.0.1:9/t.gz", f"{server.address}/gone.gz", f"{server.address}/t.gz"]
    assert obtain(text(*urls), "set", {"data": tmp_path, "mirror": None}) == (TEXT, urls[2])
    assert "http://127.0.0.1:9/t.gz: ConnectionError; trying what comes next" in caplog.text
    assert "/gone.gz: HTTPError; trying what comes next" in caplog.text
    earlier = obtain(text(*urls), "set", {"data": tmp_path, "offline": True})
    assert earlier == (TEXT, "earlier download train.txt.gz")


def test_a_wrong_download_is_told_and_not_kept_and_the_next_address_asked(tmp_path, server):
    server.files["/wrong.bin"] = b"x" * len(CONTENT)
    wrong, right = f"{server.address}/wrong.bin", f"{server.address}/a.bin"
    assert got(tmp_path / "both", archive(wrong, right)) == right
    with pytest.raises(UsageError, match=r"could not be had \(.*wrong\.bin: checksum mismatch.*wanted one of sha256:"):
        got(tmp_path / "one", archive(wrong))
    assert [path.name for path in (tmp_path / "one" / "downloads" / "set").iterdir()] == [".lock"]


def test_a_wrong_size_is_told_where_no_checksum_is_known(tmp_path, server):
    server.files["/a.bin"] = CONTENT[:-1]
    with pytest.raises(UsageError, match="511,999 bytes, wanted 512,000"):
        got(tmp_path, archive(f"{server.address}/a.bin", checksums=[]))


def test_a_damaged_earlier_download_is_had_again(tmp_path, server):
    node = archive(f"{server.address}/a.bin")
    got(tmp_path, node)
    (tmp_path / "downloads" / "set" / "a.bin").write_bytes(b"x" * len(CONTENT))
    got(tmp_path, node)


def test_an_earlier_download_stays_where_there_is_no_other(tmp_path, server):
    """The checksum may be what is wrong."""
    node = archive(f"{server.address}/a.bin")
    got(tmp_path, node)
    with pytest.raises(UsageError, match=r"earlier download a\.bin: checksum mismatch.*not asked, paths\.offline"):
        got(tmp_path, archive(f"{server.address}/a.bin", checksums=["sha256:00"]), offline=True)
    assert got(tmp_path, node, offline=True) == "earlier download a.bin"


# the last one by git hash-object --stdin
@pytest.mark.parametrize("known", [None, [], ["sha256:0", "git:63074552691cba38d45cd6c43b56209a061cab88"]])
def test_what_a_checksum_may_be(tmp_path, server, known):
    assert obtain(text(f"{server.address}/t.gz", checksums=known), "set", {"data": tmp_path})[0] == TEXT


@pytest.mark.parametrize(("said", "offline"), [("", False), ("0", False), ("no", False), ("on", True), ("TRUE", True)])
def test_offline_may_come_from_the_environment(said, offline, monkeypatch):
    monkeypatch.setenv("GPAM_OFFLINE", said)
    assert _is_offline(composed("experiment=lm_laptop").paths.offline) is offline


def test_offline_is_true_or_false():
    with pytest.raises(UsageError, match=r"paths\.offline \(GPAM_OFFLINE\): got 'maybe', wanted true or false"):
        _is_offline("maybe")


def test_offline_asks_nobody_and_says_how_to_set_the_mirror(tmp_path, server):
    match = (
        r"set/a\.bin could not be had .*not asked, paths\.offline is set.*paths\.mirror to a folder that holds set/a"
    )
    with pytest.raises(UsageError, match=match):
        got(tmp_path, archive(f"{server.address}/a.bin"), offline=True)
    assert server.asked == []


def test_cut_connections_are_taken_up_where_they_ended(tmp_path, server, caplog):
    caplog.set_level(logging.INFO)
    server.cut["/a.bin"] = [100_000, 50_000]
    assert got(tmp_path, archive(f"{server.address}/a.bin")) == f"{server.address}/a.bin"
    assert server.asked == [("/a.bin", None), ("/a.bin", "bytes=100000-"), ("/a.bin", "bytes=150000-")]
    assert f"{server.address}/a.bin: the connection was cut after 100,000 bytes; going on from there" in caplog.text


def test_a_connection_that_brings_nothing_is_given_up_and_its_part_kept(tmp_path, server):
    server.cut["/a.bin"] = [100_000] + [0] * (download.TRIES - 1)
    with pytest.raises(UsageError, match="could not be had"):
        got(tmp_path, archive(f"{server.address}/a.bin"))
    assert (tmp_path / "downloads" / "set" / "a.bin.part").stat().st_size == 100_000
    got(tmp_path, archive(f"{server.address}/a.bin"))  # the next call
    assert server.asked[-1] == ("/a.bin", "bytes=100000-")


def _killed_in_a_download(node, folder):
    had = []

    def update(number):
        had.append(number)
        if sum(had) > 200_000:
            os.kill(os.getpid(), 9)

    download.progress = lambda *_: contextlib.nullcontext(SimpleNamespace(update=update))
    obtain_file(node, "set", {"data": folder}, archive=True)


def test_a_killed_download_is_taken_up_by_the_next_process(tmp_path, server):
    node = archive(f"{server.address}/a.bin")
    process = multiprocessing.get_context("fork").Process(target=_killed_in_a_download, args=(node, tmp_path))
    process.start()
    process.join(240)
    assert process.exitcode == -9
    got(tmp_path, node)
    assert int(server.asked[-1][1].removeprefix("bytes=").removesuffix("-")) >= 190_000


def test_without_a_checksum_nothing_is_taken_up(tmp_path, server):
    """The file changes on the server between two calls: the part of the old one is not used."""
    server.files["/a.bin"] = bytes(len(CONTENT))
    server.cut["/a.bin"] = [100_000] + [0] * (download.TRIES - 1)
    with pytest.raises(UsageError):
        got(tmp_path, archive(f"{server.address}/a.bin", checksums=[]))
    server.files["/a.bin"] = CONTENT
    got(tmp_path, archive(f"{server.address}/a.bin", checksums=[]))


def test_a_server_without_ranges_is_read_from_the_beginning(tmp_path, server):
    server.ranges, server.cut["/a.bin"] = False, [100_000]
    got(tmp_path, archive(f"{server.address}/a.bin"))


def test_a_server_that_refuses_every_range_is_asked_once_more_and_given_up(tmp_path, server):
    server.always = 416
    with pytest.raises(UsageError, match="could not be had"):
        got(tmp_path, archive(f"{server.address}/a.bin"))
    assert server.asked == [("/a.bin", None)]
    folder = tmp_path / "downloads" / "set"
    (folder / "a.bin.part").write_bytes(b"x" * 10)
    with pytest.raises(UsageError, match="could not be had"):
        got(tmp_path, archive(f"{server.address}/a.bin"))
    assert server.asked[1:] == [("/a.bin", "bytes=10-"), ("/a.bin", None)]


@pytest.mark.parametrize("times", [1, 2])
def test_a_part_that_is_as_long_as_the_file_or_longer_is_thrown_away(tmp_path, server, times):
    folder = tmp_path / "downloads" / "set"
    folder.mkdir(parents=True)
    (folder / "a.bin.part").write_bytes(b"x" * len(CONTENT) * times)
    got(tmp_path, archive(f"{server.address}/a.bin"))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full to stand for a full disk")
def test_a_full_disk_is_one_sentence_and_no_other_mirror_is_asked(tmp_path, server):
    folder = tmp_path / "downloads" / "set"
    folder.mkdir(parents=True)
    (folder / "a.bin.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        got(tmp_path, archive(f"{server.address}/a.bin", f"{server.address}/b.bin"))
    assert [path for path, _ in server.asked] == ["/a.bin"]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_nodes(path):
    """Each names itself after its file, says on line 1 what it is, and has a well-formed checksum for every file."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    dataset = node(path.stem)
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
    if "defaults:" not in text:
        assert whole != ("# unknown: " in text)  # what is not known is said
    if dataset["kind"] in ("files", "corpora", "pairs"):
        assert dataset["licence"] and dataset["citation"] and dataset["expect"]
