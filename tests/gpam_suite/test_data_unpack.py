"""Archives: only the named plain file is read, and nothing is ever written where an archive says."""

import io
import tarfile
import zipfile

import pytest
from data_helpers import PLAIN

from gpam.errors import UsageError
from gpam_suite.data import prepare
from gpam_suite.data.unpack import open_member

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
    with pytest.raises(UsageError, match="leads out of the archive"), open_member(packed, member):
        pass


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_links_devices_and_folders_are_no_files(tmp_path, kind):
    (tmp_path / "secret").write_bytes(b"secret")
    packed = tar(tmp_path / "a.tgz", ("a", kind, str(tmp_path / "secret").encode()))
    with pytest.raises(UsageError, match="has no plain file 'a'"), open_member(packed, "a"):
        pass


def test_a_link_in_a_zip_is_no_file(tmp_path):
    link = zipfile.ZipInfo("a")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(UsageError, match="has no plain file 'a'"), open_member(tmp_path / "a.zip", "a"):
        pass


def test_a_missing_member_names_the_one_that_was_meant(tmp_path):
    with pytest.raises(UsageError, match=r"did you mean 'wiki\.train\.tokens'"):
        content(zipped(tmp_path / "a.zip", **{"wiki.train.tokens": TEXT}), "wiki.train.token")


def test_a_broken_archive(tmp_path):
    whole = tar(tmp_path / "a.tgz", ("a", tarfile.REGTYPE, bytes(range(256)) * 400)).read_bytes()
    for broken in (whole[: len(whole) // 2], b"no archive"):
        (tmp_path / "b.tgz").write_bytes(broken)
        with pytest.raises(UsageError, match=r"b\.tgz cannot be read"):
            content(tmp_path / "b.tgz", "a")


def test_a_set_out_of_an_archive_that_would_write_elsewhere(tmp_path):
    """Members with ``../`` beside the wanted ones do nothing; a node that names one is refused."""
    packed = tar(
        tmp_path / "set.tgz",
        ("../../evil", tarfile.REGTYPE, b"evil"),
        (str(tmp_path / "evil"), tarfile.REGTYPE, b"evil"),
        *((split, tarfile.REGTYPE, TEXT) for split in ("train", "valid", "test")),
    )
    files = {
        split: {"mirror": f"none/{split}", "urls": [], "archive": "set", "member": split}
        for split in ("train", "valid", "test")
    }
    node = {"name": "packed", "task": "lm", "kind": "files", "files": files}
    node["archives"] = {"set": {"mirror": packed.name, "urls": []}}
    paths = {"data": tmp_path / "deep" / "data", "mirror": tmp_path}
    prepared = prepare(node, PLAIN, paths)
    assert prepared.source_text("train").read_bytes() == TEXT
    assert not list(tmp_path.parent.rglob("evil"))
    files["test"]["member"] = "../../evil"
    with pytest.raises(UsageError, match="leads out of the archive"):
        prepare(node, PLAIN, paths)
