"""Archives: only the named plain file is read, and nothing is ever written where an archive says."""

import gzip
import io
import tarfile
import zipfile

import pytest
from data_helpers import PLAIN

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.store.unpack import open_member
from gpam_suite.data.text.lines import read_lines

TEXT = b"one\ntwo\n"


def tar(path, *entries):
    with tarfile.open(path, "w:gz") as archive:
        for name, kind, content in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size = kind, len(content) if kind == tarfile.REGTYPE else 0
            entry.linkname = content.decode() if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            archive.addfile(entry, io.BytesIO(content))
    return path


def zipped(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return path


def content(archive, member):
    with open_member(archive, member) as file:
        return file.read()


def test_a_member_of_each_kind_of_archive(tmp_path):
    assert content(zipped(tmp_path / "a.zip", folder__a=b"x", folder__b=TEXT), "folder/b") == TEXT
    packed = tar(tmp_path / "a.tgz", ("./x", tarfile.DIRTYPE, b""), ("./x/a", tarfile.REGTYPE, TEXT))
    assert content(packed, "x/a") == TEXT


@pytest.mark.parametrize("member", ["../out", "/etc/passwd", "a/../../out", "..\\out", "", "a\0b"])
def test_a_name_that_leads_out_is_refused(tmp_path, member):
    packed = tar(tmp_path / "a.tgz", (member or "a", tarfile.REGTYPE, TEXT))
    with pytest.raises(UsageError, match="leads out of the folder or archive"):
        content(packed, member)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_devices_and_folders_are_no_files(tmp_path, kind):
    (tmp_path / "secret").write_bytes(b"secret")
    archives = [tar(tmp_path / "a.tgz", ("a", kind, str(tmp_path / "secret").encode()))]
    if kind == tarfile.SYMTYPE:
        link = zipfile.ZipInfo("a")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        archives.append(tmp_path / "a.zip")
        with zipfile.ZipFile(archives[1], "w") as packed:
            packed.writestr(link, str(tmp_path / "secret"))
    for archive in archives:
        with pytest.raises(UsageError, match="has no plain file 'a'"):
            content(archive, "a")


def test_a_broken_archive(tmp_path):
    whole = tar(tmp_path / "a.tgz", ("a", tarfile.REGTYPE, bytes(range(256)) * 400)).read_bytes()
    for broken in (whole[: len(whole) // 2], b"no archive"):
        (tmp_path / "b.tgz").write_bytes(broken)
        with pytest.raises(UsageError, match=r"b\.tgz cannot be read"):
            content(tmp_path / "b.tgz", "a")


def test_a_set_out_of_an_archive_that_would_write_elsewhere(tmp_path):
    """Members with ``../`` do nothing, and a node that names one of those is refused."""
    (tmp_path / "mirror").mkdir()
    tar(
        tmp_path / "mirror" / "set.tgz",
        ("../../evil", tarfile.REGTYPE, b"evil"),
        (str(tmp_path / "evil"), tarfile.REGTYPE, b"evil"),
        *((split, tarfile.REGTYPE, TEXT) for split in ("train", "valid", "test")),
    )
    files = {
        split: {"mirror": f"none/{split}", "urls": [], "archive": "set", "member": split}
        for split in ("train", "valid", "test")
    }
    archives = {"set": {"mirror": "set.tgz", "urls": []}}
    node = {"name": "packed", "task": "lm", "kind": "files", "files": files, "archives": archives}
    paths = {"data": tmp_path / "deep" / "data", "mirror": tmp_path / "mirror"}
    assert prepare(node, PLAIN, paths).source_text("train").read_bytes() == TEXT
    assert not list(tmp_path.parent.rglob("evil"))
    files["test"]["member"] = "../../evil"
    with pytest.raises(UsageError, match="leads out of the folder or archive"):
        prepare(node, PLAIN, paths)


def test_an_archive_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr("gpam_suite.data.store.unpack.MOST", 1 << 20)
    zeros = bytes(8 << 20)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", zeros)
    tarred = tar(tmp_path / "bomb.tgz", ("before", tarfile.REGTYPE, zeros), ("a", tarfile.REGTYPE, zeros))
    (tmp_path / "bomb.txt.gz").write_bytes(gzip.compress(zeros))
    for read in (
        lambda: content(tmp_path / "bomb.zip", "a"),
        lambda: content(tarred, "a"),
        lambda: read_lines(tmp_path / "bomb.txt.gz"),
    ):
        with pytest.raises(UsageError, match="unpacks to more than 200 times its size"):
            read()


def test_a_small_text_that_packs_well_is_let_through(tmp_path):
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(b"the same sentence again\n" * 100_000))
    assert len(read_lines(tmp_path / "text.txt.gz")) == 100_000
