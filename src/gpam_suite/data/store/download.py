"""Public files: from the mirror folder, else from the cache of earlier downloads, else from the network."""

import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.files import write_atomically
from gpam_suite.data.store.disk import DiskFull, unwritable
from gpam_suite.data.store.unpack import refuse_outside
from gpam_suite.data.text.lines import open_text, read_bytes

log = logging.getLogger(__name__)

DOWNLOADS = "downloads"
_BLOCK = 1 << 20


class Checksums:
    """SHA-256, SHA-1, MD5 and git's blob id of a content of known size, fed in blocks."""

    def __init__(self, size: int) -> None:
        self._sums = {kind: hashlib.new(kind, usedforsecurity=False) for kind in ("sha256", "sha1", "md5")}
        self._sums["git"] = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)

    def update(self, block: bytes) -> None:
        for checksum in self._sums.values():
            checksum.update(block)

    def all(self) -> dict[str, str]:
        """``{"sha256": ..., "sha1": ..., "md5": ..., "git": ...}``."""
        return {kind: checksum.hexdigest() for kind, checksum in self._sums.items()}


def git_blob(content: bytes) -> str:
    """The id under which git stores ``content`` (SHA-1 with git's header)."""
    return _checksums([content], len(content))["git"]


def verify(content: bytes, accepted: Sequence[str], name: str | Path) -> None:
    """Compare an unpacked text with its accepted checksums; see :func:`check`."""
    check(_checksums([content], len(content)), accepted, f"{name} (unpacked)")


def check(got: Mapping[str, str], accepted: Sequence[str], name: str | Path) -> None:
    """Compare checksums with the accepted ones: ``sha256:``, ``sha1:``, ``md5:`` or ``git:...`` (a git blob id).

    No accepted checksum at all means that none is known: the facts of the data set (lines, tokens) decide then.
    """
    if accepted and not {f"{kind}:{value}" for kind, value in got.items()}.intersection(accepted):
        kinds = sorted({wanted.partition(":")[0] for wanted in accepted}.intersection(got)) or ["sha256"]
        raise UsageError(
            f"checksum mismatch: {name} has {', '.join(f'{kind}:{got[kind]}' for kind in kinds)}, wanted one of "
            f"{', '.join(accepted)}; remove the file and get it again"
        )


def file_checksums(path: Path, data: Path, unpacked: bool) -> dict[str, str]:
    """The checksums of a file, or of the text packed in it; remembered below ``data`` until the file changes."""
    stat = path.stat()
    memory = data / DOWNLOADS / "checksums.json"
    key = f"{path.absolute()}{' unpacked' if unpacked else ''}"
    seen = [stat.st_size, stat.st_mtime_ns]
    known = _read_json(memory)
    if known.get(key, {}).get("file") == seen:
        return known[key]["checksums"]
    packed = unpacked and path.suffix in (".gz", ".zip")
    size = sum(map(len, _blocks(path, True))) if packed else stat.st_size
    found = _checksums(_blocks(path, unpacked), size)
    if stat.st_size > _BLOCK:  # a smaller file is read faster than the memory
        _write_json(memory, _read_json(memory) | {key: {"file": seen, "checksums": found}})
    return found


def _blocks(path: Path, unpacked: bool) -> Iterable[bytes]:
    with open_text(path) if unpacked else path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def _checksums(blocks: Iterable[bytes], size: int) -> dict[str, str]:
    checksums = Checksums(size)
    for block in blocks:
        checksums.update(block)
    return checksums.all()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=1) + "\n")


def mirror_folder(paths: Mapping[str, Any]) -> Path | None:
    """``paths.mirror`` as a folder that exists, or None where it is not set."""
    if not paths.get("mirror"):
        return None
    folder = Path(paths["mirror"]).expanduser()
    if not folder.is_dir():
        raise UsageError(f"paths.mirror: {folder} is not a folder; give the folder with the local copies, or null")
    return folder


def obtain(file: Mapping[str, Any], dataset: str, paths: Mapping[str, Any]) -> tuple[bytes, str]:
    """The unpacked content of one public file and where it came from; see :func:`obtain_file`."""
    path, _, origin = obtain_file(file, dataset, paths)
    return read_bytes(path), origin


def obtain_file(
    file: Mapping[str, Any], dataset: str, paths: Mapping[str, Any], *, archive: bool = False
) -> tuple[Path, str, str]:
    """One public file on this machine, its SHA-256, and where it came from.

    ``file`` has ``mirror`` (path below ``paths.mirror``), ``urls`` (tried in turn), and what is known of its content:
    ``checksums`` of the unpacked text, or with ``archive`` ``checksums`` and ``bytes`` of the file as it is (then the
    SHA-256 is the file's as well, else that of the unpacked text). ``paths.offline`` keeps it from the network.

    Raises:
        UsageError: no source has it, or its checksum is none of the accepted ones.
    """
    mirror = mirror_folder(paths)
    data = Path(paths["data"]).expanduser().absolute()
    for name in (file["mirror"], *(url.rpartition("/")[2] for url in file["urls"])):
        refuse_outside(name, f"data set {dataset}")
    if mirror is not None:
        path = mirror / file["mirror"]
        if path.is_file():
            return path, _verified(path, file, data, archive), f"mirror:{file['mirror']}"
        log.info("%s is not in paths.mirror; trying the network", file["mirror"])
    cache = data / DOWNLOADS / dataset
    reasons = []
    for url in file["urls"]:
        path, origin = cache / url.rpartition("/")[2], url
        try:
            if path.is_file():
                origin = f"earlier download {path.name}"
            elif paths.get("offline"):
                reasons.append(f"{url}: not asked, paths.offline is set")
                continue
            else:
                _download(url, path, file if archive else {})
            digest = _verified(path, file, data, archive)
        except DiskFull:
            raise
        except UsageError as error:
            path.unlink(missing_ok=True)  # a broken download must not stop the next attempt
            reasons.append(f"{url}: {error}")
        except PermissionError as error:
            raise unwritable(cache, error) from error
        except OSError as error:  # requests' exceptions are OSErrors
            reasons.append(f"{url}: {type(error).__name__}")
        else:
            return path, digest, origin
        log.info("%s; trying what comes next", reasons[-1])
    advice = "try again with a network connection, or set" if file["urls"] else "set"
    raise UsageError(
        f"{file['mirror']} could not be had ({'; '.join(reasons) or 'it has no public address'}): {advice} "
        f"paths.mirror to a folder that holds {file['mirror']}"
    )


def _verified(path: Path, file: Mapping[str, Any], data: Path, archive: bool) -> str:
    """The SHA-256 of a file that is what it should be."""
    wanted = file.get("bytes") if archive else None
    if wanted is not None and path.stat().st_size != wanted:
        raise UsageError(f"{path} has {path.stat().st_size:,} bytes, wanted {wanted:,}; remove it and get it again")
    checksums = file_checksums(path, data, unpacked=not archive)
    check(checksums, file.get("checksums") or [], path if archive else f"{path} (unpacked)")
    return checksums["sha256"]


def _download(url: str, path: Path, known: Mapping[str, Any]) -> None:
    """Download with a progress bar to ``<path>.part``, renamed to ``path`` when complete.

    ``known`` has ``checksums`` where those of the file itself are known; pooch compares them.
    """
    import pooch

    from gpam_suite.data.store.fetching import ResumingDownloader

    checksum = next(iter(known.get("checksums") or []), None)
    pooch.get_logger().setLevel("WARNING")  # it would tell every user which hash to write into a program
    path.parent.mkdir(parents=True, exist_ok=True)
    downloader = ResumingDownloader(path, known=checksum is not None)
    lock = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be downloading the same
        if not path.is_file():
            pooch.retrieve(url, known_hash=checksum, fname=path.name, path=path.parent, downloader=downloader)
    except UsageError:
        raise
    except ValueError as error:  # another checksum
        raise UsageError(f"checksum mismatch: {path.name} from {url} is not {checksum}") from error
    finally:
        os.close(lock)
