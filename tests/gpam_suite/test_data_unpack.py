"""Archives: only the named plain file is read, and nothing is ever written where an archive says."""

import gzip
import hashlib
import tarfile
import zipfile

import pytest
from archives import tarred, zipped
from data_helpers import PLAIN
from local_server import serving

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.store import download
from gpam_suite.data.store.unpack import open_member
from gpam_suite.data.text.lines import read_lines

TEXT = b"one\ntwo\n"


def written(path, archive):
    path.write_bytes(archive)
    return path


def content(archive, member):
    with open_member(archive, member) as file:
        return file.read()


def test_a_member_of_each_kind_of_archive(tmp_path):
    assert content(written(tmp_path / "a.zip", zipped({"folder/a": b"x", "folder/b": TEXT})), "folder/b") == TEXT
    packed = tarred([("./x", tarfile.DIRTYPE, b""), ("./x/a", tarfile.REGTYPE, TEXT)])
    assert content(written(tmp_path / "a.tgz", packed), "x/a") == TEXT


@pytest.mark.parametrize("member", ["../out", "/etc/passwd", "a/../../out", "..\\out", "", "a\0b"])
def test_a_name_that_leads_out_is_refused(tmp_path, member):
    packed = written(tmp_path / "a.tgz", tarred([(member or "a", tarfile.REGTYPE, TEXT)]))
    with pytest.raises(UsageError, match="leads out of the folder or archive"):
        content(packed, member)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_devices_and_folders_are_no_files(tmp_path, kind):
    (tmp_path / "secret").write_bytes(b"secret")
    archives = [tarred([("a", kind, str(tmp_path / "secret").encode())])]
    if kind == tarfile.SYMTYPE:
        link = zipfile.ZipInfo("a")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archives.append(zipped({link: str(tmp_path / "secret")}))
    for archive in archives:
        with pytest.raises(UsageError, match="has no plain file 'a'"):
            content(written(tmp_path / "archive", archive), "a")


def test_a_missing_member_names_the_one_that_was_meant(tmp_path):
    packed = written(tmp_path / "a.zip", zipped({"wiki.train.tokens": TEXT}))
    with pytest.raises(UsageError, match=r"did you mean 'wiki\.train\.tokens'"):
        content(packed, "wiki.train.token")


def test_a_broken_archive(tmp_path):
    whole = tarred([("a", tarfile.REGTYPE, bytes(range(256)) * 400)])
    for broken in (whole[: len(whole) // 2], b"no archive"):
        with pytest.raises(UsageError, match=r"b\.tgz cannot be read"):
            content(written(tmp_path / "b.tgz", broken), "a")


def test_a_set_out_of_an_archive_that_would_write_elsewhere(tmp_path, monkeypatch):
    """The whole path: a dead first mirror, a cut connection, an archive whose members with ``../`` do nothing; a node
    that names one of those is refused, and so is another archive."""
    monkeypatch.setattr(download, "_BLOCK", 50)
    members = {"../../evil": b"evil", str(tmp_path / "evil"): b"evil", "train": TEXT, "valid": TEXT, "test": TEXT}
    content = tarred([(name, tarfile.REGTYPE, text) for name, text in members.items()])
    files = {
        split: {"mirror": f"none/{split}", "urls": [], "archive": "set", "member": split}
        for split in ("train", "valid", "test")
    }
    node = {"name": "packed", "task": "lm", "kind": "files", "files": files}
    with serving(set_tgz=content) as server:
        server.cut["/set.tgz"] = [100]
        checksum = f"sha256:{hashlib.sha256(content).hexdigest()}"
        urls = ["http://127.0.0.1:9/set.tgz", f"{server.address}/set.tgz"]
        node["archives"] = {"set": {"mirror": "set.tgz", "urls": urls, "checksums": [checksum], "bytes": len(content)}}
        paths = {"data": tmp_path / "deep" / "data"}
        prepared = prepare(node, PLAIN, paths)
        assert [wanted for _, wanted in server.asked] == [None, "bytes=100-"]
        server.files["/set.tgz"] = content[:-1] + b"x"
        with pytest.raises(UsageError, match=r"set\.tgz could not be had \(.*checksum mismatch: .*set\.tgz has sha256"):
            prepare(node, PLAIN, {"data": tmp_path / "other"})
    assert prepared.source_text("train").read_bytes() == TEXT
    assert not list(tmp_path.parent.rglob("evil"))
    files["test"]["member"] = "../../evil"
    with pytest.raises(UsageError, match="leads out of the folder or archive"):
        prepare(node, PLAIN, paths)


def test_an_archive_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("gpam_suite.data.store.unpack.MOST", 1 << 20)
    zeros = bytes(8 << 20)
    members = [("before", tarfile.REGTYPE, zeros), ("a", tarfile.REGTYPE, zeros)]
    for read in (
        lambda: content(written(tmp_path / "bomb.zip", zipped({"a": zeros})), "a"),
        lambda: content(written(tmp_path / "bomb.tgz", tarred(members)), "a"),
        lambda: read_lines(written(tmp_path / "bomb.txt.gz", gzip.compress(zeros))),
    ):
        with pytest.raises(UsageError, match="unpacks to more than 200 times its size"):
            read()


def test_a_small_text_that_packs_well_is_let_through(tmp_path):
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(b"the same sentence again\n" * 100_000))
    assert len(read_lines(tmp_path / "text.txt.gz")) == 100_000
