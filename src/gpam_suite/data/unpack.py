"""Files out of tar and zip archives, by name, nothing else: no other path is ever written."""

import contextlib
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from gpam.errors import UsageError, did_you_mean


@contextlib.contextmanager
def open_member(archive: Path, member: str) -> Iterator[BinaryIO]:
    """The content of the plain file ``member`` of a ``.zip`` or (compressed) tar ``archive``; nothing is written.

    Raises:
        UsageError: ``archive`` is none, or has no plain file of this name (a link, device or folder is none).
    """
    refuse_outside(member, str(archive))
    try:
        with _zipped(archive, member) if zipfile.is_zipfile(archive) else _tarred(archive, member) as file:
            yield file
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError) as error:
        raise UsageError(f"archive {archive} cannot be read: {error}; remove it and get it again") from error


def refuse_outside(member: str, where: str) -> None:
    """Refuse a name that could lead out of a folder that it is joined to."""
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in member or "\0" in member:
        raise UsageError(f"{where}: the name '{member}' leads out of the archive; wanted a path inside it")


@contextlib.contextmanager
def _zipped(archive: Path, member: str) -> Iterator[BinaryIO]:
    with zipfile.ZipFile(archive) as opened:
        entries = {entry.filename: entry for entry in opened.infolist()}
        entry = entries.get(member)
        # the upper half of the attributes is the mode that Unix archivers write, whose top digit is 0o12 for a link
        if entry is None or entry.is_dir() or entry.external_attr >> 28 == 0o12:
            raise _absent(archive, member, list(entries))
        with io.BufferedReader(opened.open(entry), 1 << 20) as file:
            yield file


@contextlib.contextmanager
def _tarred(archive: Path, member: str) -> Iterator[BinaryIO]:
    """One pass over the archive: a member of a compressed tar cannot be reached without reading what is before it."""
    names = []
    with tarfile.open(archive, "r:*") as opened:
        for entry in opened:
            name = entry.name.removeprefix("./")
            if name == member and entry.isreg():
                with opened.extractfile(entry) as file:
                    yield file
                return
            names.append(name)
    raise _absent(archive, member, names)


def _absent(archive: Path, member: str, names: list[str]) -> UsageError:
    return UsageError(f"archive {archive.name} has no plain file '{member}'{did_you_mean(member, names)}")
