"""Packed texts, and files out of tar and zip archives by name, nothing else: no other path is ever written."""

import bz2
import contextlib
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from gpam.errors import UsageError, did_you_mean, in_a_line

MOST, RATIO = 1 << 28, 200  # bytes that any packed file may have unpacked, and times its own bytes (text: about 4)
_PACKED = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")  # the latter of an archive without a file


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
    return UsageError(f"{path} cannot be read: {in_a_line(error)}; remove it and get it again")


def open_text(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    """A text file, unpacked on the way if it is packed by gzip, bzip2 or xz, or a zip archive of one file, whatever its
    name.

    Raises:
        UsageError: it is not there; or, while it is read, broken or of a size that no text has.
    """
    if not path.is_file():
        raise UsageError(f"{path} is a folder, wanted a text file" if path.is_dir() else f"{path} does not exist")
    with path.open("rb") as file:
        start = file.read(6)
    if start.startswith(_ZIP):
        return _opened(path, lambda stack: _zipped(path, None, stack))
    opener = _opener(start)
    return _opened(path, lambda _: opener(path, "rb")) if opener else path.open("rb")


def open_member(archive: Path, member: str) -> contextlib.AbstractContextManager[BinaryIO]:
    """The content of the plain file ``member`` of a ``.zip`` or (compressed) tar ``archive``; nothing is written.

    Raises:
        UsageError: ``archive`` is none, or has no plain file of this name (a link, device or folder is none); or, while
            it is read, broken or of a size that no text has.
    """
    refuse_outside(member, str(archive))

    def find(stack: contextlib.ExitStack) -> BinaryIO:
        return (_zipped if zipfile.is_zipfile(archive) else _tarred)(archive, member, stack)

    return _opened(archive, find)


@contextlib.contextmanager
def _opened(path: Path, find: Callable[[contextlib.ExitStack], BinaryIO]) -> Iterator[BinaryIO]:
    """What ``find`` opens in a packed file, read up to a size that no text reaches."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(find(stack))
        except UsageError:
            raise
        except Exception as error:  # see _Unpacked
            raise _broken(path, error) from None
        yield _limited(file, path)


def refuse_outside(member: str, where: str) -> None:
    """Refuse a name that could lead out of a folder that it is joined to."""
    path = PurePosixPath(member)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in member or "\0" in member:
        raise UsageError(f"{where}: the name '{member}' leads out of the folder or archive; wanted a path inside it")


def _zipped(archive: Path, member: str | None, stack: contextlib.ExitStack) -> BinaryIO:
    """A member of a zip archive; None: its only file."""
    opened = stack.enter_context(zipfile.ZipFile(archive))
    # the upper half of the attributes is the mode that Unix archivers write, whose top digit is 0o12 for a link
    files = {of.filename: of for of in opened.infolist() if not of.is_dir() and of.external_attr >> 28 != 0o12}
    if member is None and len(files) != 1:
        raise UsageError(f"text file {archive}: an archive of {len(files)} files, wanted one with the text only")
    if member is not None and member not in files:
        raise _absent(archive, member, list(files))
    return opened.open(files[member] if member else files.popitem()[1])


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
    opener = _opener(file.peek(6))
    return _limited(stack.enter_context(opener(file, "rb")), archive) if opener else file


def _opener(start: bytes) -> Callable[[Any, str], BinaryIO] | None:
    """What unpacks a file that begins with ``start``; None where it is not packed."""
    return next((opener for mark, opener in _PACKED.items() if start.startswith(mark)), None)


def _absent(archive: Path, member: str, names: list[str]) -> UsageError:
    return UsageError(f"archive {archive.name} has no plain file '{member}'{did_you_mean(member, names)}")
