"""Public files: from the mirror folder, else from the cache of earlier downloads, else from the network."""

import fcntl
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.failures import NO_ROOM_OR_RIGHT
from gpam_suite.data.store.unpack import refuse_outside
from gpam_suite.data.text.lines import open_text, read_bytes

log = logging.getLogger(__name__)

DOWNLOADS = "downloads"
KINDS = ("sha256", "sha1", "md5", "git")
"""What a checksum may be; ``git`` is the id under which git stores a file."""
_BLOCK = 1 << 20


def checksums(path: Path, kinds: Iterable[str], unpacked: bool) -> dict[str, str]:
    """Checksums of a file, or of the text packed in it: ``sha256`` and those of ``kinds`` (:data:`KINDS`)."""
    sums = {kind: hashlib.new("sha1" if kind == "git" else kind, usedforsecurity=False) for kind in {"sha256", *kinds}}
    if "git" in sums:
        sums["git"].update(b"blob %d\0" % sum(map(len, _blocks(path, unpacked))))
    for block in _blocks(path, unpacked):
        for checksum in sums.values():
            checksum.update(block)
    return {kind: checksum.hexdigest() for kind, checksum in sums.items()}


def _blocks(path: Path, unpacked: bool) -> Iterator[bytes]:
    with open_text(path) if unpacked else path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


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
            return path, _verified(path, file, archive), f"mirror:{file['mirror']}"
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
                _download(url, path, file, archive)
            digest = _verified(path, file, archive)
        except UsageError as error:
            path.unlink(missing_ok=True)  # a broken download must not stop the next attempt
            reasons.append(f"{url}: {error}")
        except OSError as error:  # requests' exceptions are OSErrors
            if error.errno in NO_ROOM_OR_RIGHT:
                raise
            reasons.append(f"{url}: {type(error).__name__}")
        else:
            return path, digest, origin
        log.info("%s; trying what comes next", reasons[-1])
    advice = "try again with a network connection, or set" if file["urls"] else "set"
    raise UsageError(
        f"{file['mirror']} could not be had ({'; '.join(reasons) or 'it has no public address'}): {advice} "
        f"paths.mirror to a folder that holds {file['mirror']}"
    )


def _verified(path: Path, file: Mapping[str, Any], archive: bool) -> str:
    """The SHA-256 of a file that is what it should be.

    No accepted checksum at all means that none is known: the facts of the data set (lines, tokens) decide then.
    """
    wanted = file.get("bytes") if archive else None
    if wanted is not None and path.stat().st_size != wanted:
        raise UsageError(f"{path} has {path.stat().st_size:,} bytes, wanted {wanted:,}; remove it and get it again")
    accepted = file.get("checksums") or []
    kinds = [kind for kind in KINDS if any(checksum.startswith(f"{kind}:") for checksum in accepted)] or ["sha256"]
    got = checksums(path, kinds, unpacked=not archive)
    if accepted and not {f"{kind}:{value}" for kind, value in got.items()}.intersection(accepted):
        found, what = ", ".join(f"{kind}:{got[kind]}" for kind in kinds), path if archive else f"{path} (unpacked)"
        wanted = ", ".join(accepted)
        raise UsageError(
            f"checksum mismatch: {what} has {found}, wanted one of {wanted}; remove the file and get it again"
        )
    return got["sha256"]


def _download(url: str, path: Path, file: Mapping[str, Any], archive: bool) -> None:
    """Download with a progress bar to ``<path>.part``, renamed to ``path`` when complete.

    Of an archive the checksums are those of the file itself, and pooch compares one.
    """
    import pooch

    from gpam_suite.data.store.fetching import ResumingDownloader

    accepted = file.get("checksums") or []
    checksum = accepted[0] if archive and accepted else None
    pooch.get_logger().setLevel("WARNING")  # it would tell every user which hash to write into a program
    path.parent.mkdir(parents=True, exist_ok=True)
    downloader = ResumingDownloader(path, known=bool(accepted))
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
