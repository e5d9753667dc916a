"""The download path against a server on this machine: cut connections, dead mirrors, wrong content, a full disk."""

import gzip
import hashlib
import logging
import os
import subprocess
import sys
import time

import pytest
from local_server import serving

from gpam.errors import UsageError
from gpam_suite.data.store import fetching
from gpam_suite.data.store.download import obtain, obtain_file

CONTENT = bytes(range(256)) * 2000
SHA256 = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


@pytest.fixture(autouse=True)
def no_proxy_no_waiting_small_blocks(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(fetching, "_BLOCK", 10_000)


def archive(*urls, **facts):
    return {"mirror": "set/a.bin", "urls": list(urls), "checksums": [SHA256], "bytes": len(CONTENT)} | facts


def got(tmp_path, node, **paths):
    path, digest, origin = obtain_file(node, "set", {"data": tmp_path} | paths, archive=True)
    assert path.read_bytes() == CONTENT and f"sha256:{digest}" == SHA256
    assert not list(path.parent.glob("*.part*"))
    return origin


def test_cut_connections_are_taken_up_where_they_ended(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with serving(a_bin=CONTENT) as server:
        server.cut["/a.bin"] = [100_000, 50_000]
        assert got(tmp_path, archive(f"{server.address}/a.bin")) == f"{server.address}/a.bin"
        assert server.asked == [("/a.bin", None), ("/a.bin", "bytes=100000-"), ("/a.bin", "bytes=150000-")]
        assert f"{server.address}/a.bin: the connection was cut after 100,000 bytes; going on from there" in caplog.text


def test_a_connection_that_brings_nothing_is_given_up_and_its_part_kept(tmp_path):
    with serving(a_bin=CONTENT) as server:
        server.cut["/a.bin"] = [100_000] + [0] * (fetching.TRIES - 1)
        with pytest.raises(UsageError, match="could not be had"):
            got(tmp_path, archive(f"{server.address}/a.bin"))
        assert (tmp_path / "downloads" / "set" / "a.bin.part").stat().st_size == 100_000
        got(tmp_path, archive(f"{server.address}/a.bin"))  # the next call
        assert server.asked[-1] == ("/a.bin", "bytes=100000-")


def test_a_killed_download_is_taken_up_by_the_next_process(tmp_path):
    code = (
        "import os, sys; from gpam_suite.data.store import fetching, download\n"
        "fetching._BLOCK = 10_000\n"
        "class Bar:\n"
        "    def __init__(self, *_, **__): self.n = 0\n"
        "    def __enter__(self): return self\n"
        "    def __exit__(self, *_): pass\n"
        "    def update(self, n):\n"
        "        self.n += n\n"
        "        if self.n > 200_000: os.kill(os.getpid(), 9)\n"
        "fetching.progress = Bar\n"
        "download.obtain_file({'mirror': 'x', 'urls': [sys.argv[1]], 'checksums': [sys.argv[2]]}, 'set',"
        " {'data': sys.argv[3]}, archive=True)"
    )
    with serving(a_bin=CONTENT) as server:
        address = f"{server.address}/a.bin"
        killed = subprocess.run([sys.executable, "-c", code, address, SHA256, str(tmp_path)], check=False)
        assert killed.returncode == -9
        got(tmp_path, archive(address))
        assert int(server.asked[-1][1].removeprefix("bytes=").removesuffix("-")) >= 190_000


def test_without_a_checksum_nothing_is_taken_up(tmp_path):
    """The file changes on the server between two calls: the part of the old one is not used."""
    old = bytes(len(CONTENT))
    with serving(a_bin=old) as server:
        server.cut["/a.bin"] = [100_000] + [0] * (fetching.TRIES - 1)
        with pytest.raises(UsageError):
            got(tmp_path, archive(f"{server.address}/a.bin", checksums=[]))
        server.files["/a.bin"] = CONTENT
        got(tmp_path, archive(f"{server.address}/a.bin", checksums=[]))


def test_a_server_without_ranges_is_read_from_the_beginning(tmp_path):
    with serving(a_bin=CONTENT) as server:
        server.ranges, server.cut["/a.bin"] = False, [100_000]
        got(tmp_path, archive(f"{server.address}/a.bin"))


def test_a_part_longer_than_the_file_is_thrown_away(tmp_path):
    folder = tmp_path / "downloads" / "set"
    folder.mkdir(parents=True)
    (folder / "a.bin.part").write_bytes(CONTENT * 2)
    with serving(a_bin=CONTENT) as server:
        got(tmp_path, archive(f"{server.address}/a.bin"))


def test_a_part_that_is_the_whole_file_needs_nothing_more(tmp_path):
    folder = tmp_path / "downloads" / "set"
    folder.mkdir(parents=True)
    (folder / "a.bin.part").write_bytes(CONTENT)
    with serving(a_bin=CONTENT) as server:
        got(tmp_path, archive(f"{server.address}/a.bin"))
        assert server.asked == [("/a.bin", f"bytes={len(CONTENT)}-")]


def test_a_dead_first_mirror_does_not_matter(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    with serving(a_bin=CONTENT) as server:
        urls = ["http://127.0.0.1:9/a.bin", f"{server.address}/gone.bin", f"{server.address}/a.bin"]
        assert got(tmp_path, archive(*urls)) == urls[2]
    assert "http://127.0.0.1:9/a.bin: ConnectionError; trying what comes next" in caplog.text
    assert "/gone.bin: HTTPError; trying what comes next" in caplog.text


def test_a_wrong_checksum_is_told_and_the_next_mirror_asked(tmp_path):
    with serving(wrong_bin=b"x" * len(CONTENT), a_bin=CONTENT) as server:
        wrong, right = f"{server.address}/wrong.bin", f"{server.address}/a.bin"
        assert got(tmp_path / "both", archive(wrong, right)) == right
        with pytest.raises(UsageError, match=r"could not be had \(.*wrong\.bin: checksum mismatch.*not sha256:"):
            got(tmp_path / "one", archive(wrong))
        assert list((tmp_path / "one" / "downloads" / "set").iterdir()) == []


def test_a_wrong_size_is_told_where_no_checksum_is_known(tmp_path):
    with serving(a_bin=CONTENT[:-1]) as server, pytest.raises(UsageError, match="511,999 bytes, wanted 512,000"):
        got(tmp_path, archive(f"{server.address}/a.bin", checksums=[]))


def test_a_damaged_earlier_download_is_had_again(tmp_path):
    with serving(a_bin=CONTENT) as server:
        node = archive(f"{server.address}/a.bin", f"{server.address}/a.bin")
        got(tmp_path, node)
        (tmp_path / "downloads" / "set" / "a.bin").write_bytes(b"x" * len(CONTENT))
        got(tmp_path, node)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full to stand for a full disk")
def test_a_full_disk_is_one_sentence_and_no_other_mirror_is_asked(tmp_path):
    folder = tmp_path / "downloads" / "set"
    folder.mkdir(parents=True)
    (folder / "a.bin.part").symlink_to("/dev/full")
    with serving(a_bin=CONTENT, b_bin=CONTENT) as server:
        urls = [f"{server.address}/{name}.bin" for name in "ab"]
        with pytest.raises(OSError, match="No space left"):
            got(tmp_path, archive(*urls))
        assert [path for path, _ in server.asked] == ["/a.bin"]


def test_a_disk_with_too_little_room_is_told_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    wanted = "512,000 more bytes are wanted and 1,000 are free"
    with serving(a_bin=CONTENT) as server, pytest.raises(OSError, match=wanted):
        got(tmp_path, archive(f"{server.address}/a.bin"))
    assert not (tmp_path / "downloads" / "set" / "a.bin.part").exists()


def test_offline_asks_nobody(tmp_path):
    with serving(a_bin=CONTENT) as server:
        node = archive(f"{server.address}/a.bin")
        with pytest.raises(UsageError, match=r"not asked, paths\.offline is set"):
            got(tmp_path, node, offline=True)
        assert server.asked == []
        got(tmp_path, node)
        assert got(tmp_path, node, offline=True) == "earlier download a.bin"


def test_texts_are_had_in_the_same_way(tmp_path):
    text = b"one\ntwo\n"
    file = {"mirror": "t.gz", "checksums": [f"sha256:{hashlib.sha256(text).hexdigest()}"]}
    with serving(t_gz=gzip.compress(text)) as server:
        assert obtain(file | {"urls": [f"{server.address}/t.gz"]}, "set", {"data": tmp_path})[0] == text
