"""Packed texts, and files out of tar and zip archives by name, nothing else: no other path is ever written."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from gpam.errors import UsageError, did_you_mean

MOST, RATIO = 1 << 28, 200  # bytes that any packed file may have unpacked, and times its own bytes (text: about 4)
_PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}


class _Unpacked(io.RawIOBase):
    """A stream that unpacks ``file``, of a packed file at ``path``, up to a size that no text reaches."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._left = max(MOST, RATIO * path.stat().st_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        try:
            block = self._file.read(len(buffer))
        except Exception as error:  # what zlib, lzma, bz2, zipfile and tarfile raise for a broken file is no short list
            raise _broken(self._path, error) from None
        self._left -= len(block)
        if self._left < 0:
            raise UsageError(
                f"{self._path} unpacks to more than {RATIO} times its size, which no text does; remove it, get it again"
            )
        buffer[: len(block)] = block
        return len(block)


def _limited(file: BinaryIO, path: Path) -> BinaryIO:
    return io.BufferedReader(_Unpacked(file, path), 1 << 20)


def _broken(path: Path, error: Exception) -> UsageError:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return UsageError(f"{path} cannot be read: {reason}; remove it and get it again")


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """A text file, unpacked on the way if its name ends in ``.gz``, or in ``.zip`` (an archive of one file).

    Raises:
        UsageError: it is not there; or, while it is read, broken or of a size that no text has.
    """
    if not path.is_file():
        raise UsageError(f"text file {path} does not exist")
    if path.suffix not in (".gz", ".zip"):
        with path.open("rb") as file:
            yield file
        return
    with contextlib.ExitStack() as stack:
        try:
            file = gzip.GzipFile(path) if path.suffix == ".gz" else _only_file(path, stack)
            stack.enter_context(file)
        except UsageError:
            raise
        except Exception as error:  # see _Unpacked
            raise _broken(path, error) from None
        yield _limited(file, path)


def _only_file(path: Path, stack: contextlib.ExitStack) -> BinaryIO:
    archive = stack.enter_context(zipfile.ZipFile(path))
    names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    if len(names) != 1:
        raise UsageError(f"text file {path}: an archive of {len(names)} files, wanted one with the text only")
    return archive.open(names[0])


@contextlib.contextmanager
def open_member(archive: Path, member: str) -> Iterator[BinaryIO]:
    """The content of the plain file ``member`` of a ``.zip`` or (compressed) tar ``archive``; nothing is written.

    Raises:
        UsageError: ``archive`` is none, or has no plain file of this name (a link, device or folder is none); or, while
            it is read, broken or of a size that no text has.
    """
    refuse_outside(member, str(archive))
    with contextlib.ExitStack() as stack:
        try:
            find = _zipped if zipfile.is_zipfile(archive) else _tarred
            file = stack.enter_context(find(archive, member, stack))
        except UsageError:
            raise
        except Exception as error:  # see _Unpacked
            raise _broken(archive, error) from None
        yield _limited(file, archive)


def refuse_outside(member: str, where: str) -> None:
    """Refuse a name that could lead out of a folder that it is joined to."""
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in member or "\0" in member:
        raise UsageError(f"{where}: the name '{member}' leads out of the archive; wanted a path inside it")


def _zipped(archive: Path, member: str, stack: contextlib.ExitStack) -> BinaryIO:
    opened = stack.enter_context(zipfile.ZipFile(archive))
    entries = {entry.filename: entry for entry in opened.infolist()}
    entry = entries.get(member)
    # the upper half of the attributes is the mode that Unix archivers write, whose top digit is 0o12 for a link
    if entry is None or entry.is_dir() or entry.external_attr >> 28 == 0o12:
        raise _absent(archive, member, list(entries))
    return opened.open(entry)


def _tarred(archive: Path, member: str, stack: contextlib.ExitStack) -> BinaryIO:
    """One pass over the archive: a member of a compressed tar cannot be reached without reading what is before it."""
    names = []
    opened = stack.enter_context(tarfile.TarFile.open(fileobj=_plain(archive, stack), mode="r|"))
    for entry in opened:
        name = entry.name.removeprefix("./")
        if name == member and entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
            return opened.extractfile(entry)
        names.append(name)
    raise _absent(archive, member, names)


def _plain(archive: Path, stack: contextlib.ExitStack) -> BinaryIO:
    """The tar of an archive, unpacked where it is packed (tarfile itself would not look at gzip's checksum)."""
    file = stack.enter_context(archive.open("rb"))
    start = file.peek(6)
    for mark, opener in _PACKED.items():
        if start.startswith(mark):
            return _limited(stack.enter_context(opener(file, "rb")), archive)
    return file


def _absent(archive: Path, member: str, names: list[str]) -> UsageError:
    return UsageError(f"archive {archive.name} has no plain file '{member}'{did_you_mean(member, names)}")
