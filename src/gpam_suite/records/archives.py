"""A folder packed into one file: ``runs/lm_ptb.tar.xz`` stands for the folder ``runs/lm_ptb``, ``runs.tar.xz`` for
``runs``.

Readers ask by path, ``runs/lm_laptop/softmax-default/seed1-bfa60bb7/record.json``. What is not on the disk is looked
for in the archive of each folder above it, up to the results folder; a file on the disk goes before one in an archive.
Nothing is ever unpacked onto the disk.
"""

import io
import lzma
import tarfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from gpam.errors import UsageError

SUFFIX = ".tar.xz"
_OF_RESULTS = {"runs", "analysis", "perturbed", "tuning", "benchmark"}
"""Folders of a results folder; some of them stand in others."""
_TO_EXPERIMENT = 3  # folders above a run's record: the run, the model, the experiment
MOST = 1 << 28  # bytes that an archive may hold unpacked; those published hold a hundredth of it


def pack(files: Mapping[str, bytes]) -> bytes:
    """An archive of ``files`` (name to content): by name, without dates and owners, so the same files give the same
    bytes on one version of liblzma.

    Raises:
        UsageError: they make more than :data:`MOST` bytes, which :func:`unpack` would refuse.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = len(files[name])
            archive.addfile(member, io.BytesIO(files[name]))
    if (size := len(plain.getbuffer())) > MOST:
        raise UsageError(
            f"got {size:,} bytes for one archive, wanted at most {MOST:,}: move some experiments to another folder."
        )
    return lzma.compress(plain.getbuffer(), preset=9)


def unpack(archive: Path) -> Mapping[str, bytes]:
    """Name to content of the plain files in ``archive``.

    Raises:
        UsageError: it is broken, holds more than :data:`MOST` bytes, or something that is no plain file.
    """
    found = archive.stat()
    return _members(archive, (found.st_ino, found.st_size, found.st_mtime_ns))


@lru_cache(maxsize=64)
def _members(archive: Path, state: tuple[int, ...]) -> Mapping[str, bytes]:
    advice = "restore it from git, or remove it"
    try:
        with lzma.open(archive) as stream:
            content = stream.read(MOST + 1)
        if len(content) > MOST:
            raise UsageError(f"{archive} holds more than {MOST:,} bytes unpacked, which no runs do: {advice}.")
        with tarfile.open(fileobj=io.BytesIO(content)) as packed:
            members = packed.getmembers()
            if strange := next((member.name for member in members if not member.isfile()), None):
                raise UsageError(
                    f"{archive}: {strange!r} is no plain file, and an archive of this name is read as its folder: a "
                    f"backup of yours wants another name; else {advice}."
                )
            return MappingProxyType({member.name: packed.extractfile(member).read() for member in members})
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise UsageError(f"{archive} is broken ({error}): {advice}.") from None


def archive_of(folder: Path) -> Path:
    """The archive that stands for ``folder``."""
    return folder.with_name(folder.name + SUFFIX)


def _above(path: Path) -> list[tuple[Path, PurePosixPath]]:
    """The archives of ``path`` itself and of the folders above it, up to the results folder that it is in (where it is
    in none, to its experiment's), and what ``path`` is called in each. What lies beside folders further up is none of
    ours, as a packed copy of a project."""
    folders = [folder for folder in (path, *path.parents) if folder.name]
    last = next((at for at, folder in enumerate(folders) if folder.name in _OF_RESULTS), _TO_EXPERIMENT)
    while last + 1 < len(folders) and folders[last].name in _OF_RESULTS:
        last += 1
    found = [(folder, archive_of(folder)) for folder in folders[: last + 1]]
    return [(archive, PurePosixPath(path.relative_to(folder))) for folder, archive in found if archive.is_file()]


def _packed(path: Path) -> bytes | None:
    for archive, name in _above(path):
        if (content := unpack(archive).get(str(name))) is not None:
            return content
    return None


def is_file(path: Path) -> bool:
    """Whether there is a file, on the disk or in an archive."""
    return path.is_file() or _packed(path) is not None


def read_bytes(path: Path) -> bytes:
    """The content of a file, on the disk or in an archive.

    Raises:
        FileNotFoundError: it is in neither; what is no plain file (a folder, a pipe) is none.
    """
    if path.is_file():
        return path.read_bytes()
    if (content := _packed(path)) is None:
        raise FileNotFoundError(path)
    return content


def find(folder: Path, pattern: str) -> list[Path]:
    """Paths of the files below ``folder`` that match ``pattern`` (``*/*/*/record.json``), sorted; those in archives of
    ``folder``, of a folder above it and of folders right in it are found as if they were unpacked."""
    found = {path for path in folder.glob(pattern) if path.is_file()}
    for archive in [*folder.glob(f"*{SUFFIX}"), *(archive for archive, _ in _above(folder))]:
        unpacked = archive.with_name(archive.name.removesuffix(SUFFIX))
        for name in unpack(archive):
            path = unpacked / name
            inner = path.relative_to(folder) if path.is_relative_to(folder) else Path()
            if len(inner.parts) == pattern.count("/") + 1 and inner.match(pattern):
                found.add(path)
    return sorted(found)
