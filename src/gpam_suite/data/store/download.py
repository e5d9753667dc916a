"""Public files: from the mirror folder, else from the cache of earlier downloads, else from the network."""

import hashlib
import logging
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gpam.errors import UsageError
from gpam_suite.common.failures import NO_ROOM_OR_RIGHT
from gpam_suite.common.lock import locked
from gpam_suite.common.options import several, whole_number
from gpam_suite.data.progress import progress
from gpam_suite.data.store.unpack import open_text, refuse_outside

log = logging.getLogger(__name__)

DOWNLOADS = "downloads"
CHECKSUMS = ("sha256", "sha1", "md5", "git")
"""What a checksum may be; ``git`` is the id under which git stores a file."""
TRIES = 5  # connections in a row that bring nothing new
_TIMEOUT = 30  # seconds
_BLOCK = 1 << 15  # at most so much is lost when a connection is cut


def checksum(path: Path, kind: str, unpacked: bool) -> str:
    """A checksum (:data:`CHECKSUMS`) of a file, or of the text packed in it."""
    with open_text(path) if unpacked else path.open("rb") as file:
        if kind == "git":
            content = file.read()
            return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        return hashlib.file_digest(file, partial(hashlib.new, kind, usedforsecurity=False)).hexdigest()


def mirrored(name: str, paths: Mapping[str, Any]) -> Path | None:
    """The local copy of a file below ``paths.mirror``, None where there is none."""
    if not paths.get("mirror"):
        return None
    folder = Path(paths["mirror"]).expanduser()
    if not folder.is_dir():
        raise UsageError(f"paths.mirror: {folder} is not a folder; give the folder with the local copies, or null")
    return folder / name if (folder / name).is_file() else None


def checked_file(node: Any, key: str) -> Mapping[str, Any]:
    """``node``, the value of the option ``key``, if it describes a public file."""
    known = isinstance(node, Mapping) and isinstance(node.get("mirror"), str) and isinstance(node.get("urls"), list)
    if not known or not all(isinstance(url, str) for url in node["urls"]):
        raise UsageError(f"{key}: got {node!r}, wanted mirror (a path), urls (a list), and what is known: checksums")
    if not all(isinstance(one, str) for one in several(node.get("checksums") or [], f"{key}.checksums")):
        raise UsageError(f"{key}.checksums: got {node['checksums']!r}, wanted texts, as sha256:...")
    if node.get("bytes") is not None:
        whole_number(node["bytes"], 0, f"{key}.bytes")
    if "archive" in node and not isinstance(node.get("member"), str):
        raise UsageError(f"{key}: got an archive, wanted its member (a path inside it) as well")
    return node


def has_checksums(node: Any) -> bool:
    """Whether every public file in a part of a configuration has checksums."""
    if not isinstance(node, dict):
        return not isinstance(node, list) or all(map(has_checksums, node))
    return bool("mirror" not in node or node.get("checksums")) and all(map(has_checksums, node.values()))


def obtain(file: Mapping[str, Any], dataset: str, paths: Mapping[str, Any]) -> tuple[bytes, str]:
    """The unpacked content of one public file and where it came from; see :func:`obtain_file`."""
    path, _, origin = obtain_file(file, dataset, paths)
    with open_text(path) as text:
        return text.read(), origin


def obtain_file(
    file: Mapping[str, Any], dataset: str, paths: Mapping[str, Any], *, archive: bool = False
) -> tuple[Path, str, str]:
    """One public file on this machine, its SHA-256, and where it came from.

    ``file`` has ``mirror`` (path below ``paths.mirror`` and below the folder of downloads, another mirror so), ``urls``
    (tried in turn), and what is known of its content: ``checksums`` of the unpacked text, or with ``archive``
    ``checksums`` and ``bytes`` of the file as it is (then the SHA-256 is the file's as well, else that of the unpacked
    text). ``paths.offline`` keeps it from the network.

    Raises:
        UsageError: no source has it, or its checksum is none of the accepted ones.
    """
    refuse_outside(file["mirror"], f"data set {dataset}")
    if path := mirrored(file["mirror"], paths):
        return path, _verified(path, file, archive), f"mirror:{file['mirror']}"
    path = Path(paths["data"]).expanduser().absolute() / DOWNLOADS / file["mirror"]
    earlier = [f"earlier download {path.name}"] if path.is_file() else []
    offline, reasons = _is_offline(paths.get("offline")), []
    for origin in [*earlier, *file["urls"]]:
        try:
            if origin in file["urls"]:
                if offline:
                    reasons.append(f"{origin}: not asked, paths.offline is set")
                    continue
                _download(origin, path, resume=bool(file.get("checksums")), replace=bool(earlier))
            digest = _verified(path, file, archive)
        except UsageError as error:
            if origin in file["urls"]:  # it must not stop the next attempt; an earlier one stays till there is another
                path.unlink(missing_ok=True)
            reasons.append(f"{origin}: {error}")
        except OSError as error:  # requests' exceptions are OSErrors
            if error.errno in NO_ROOM_OR_RIGHT:
                raise
            reasons.append(f"{origin}: {type(error).__name__}")
        else:
            return path, digest, origin
        log.info("%s; trying what comes next", reasons[-1])
    advice = "try again with a network connection, or set" if file["urls"] else "set"
    raise UsageError(
        f"{file['mirror']} could not be had ({'; '.join(reasons) or 'it has no public address'}): {advice} "
        f"paths.mirror to a folder that holds {file['mirror']}"
    )


def _is_offline(given: Any) -> bool:
    """``paths.offline``, or the text of ``GPAM_OFFLINE``."""
    said = str(given or "").lower()
    if said not in ("", "0", "false", "no", "off", "1", "true", "yes", "on"):
        raise UsageError(f"paths.offline (GPAM_OFFLINE): got {given!r}, wanted true or false")
    return said in ("1", "true", "yes", "on")


def _verified(path: Path, file: Mapping[str, Any], archive: bool) -> str:
    """The SHA-256 of a file that is what it should be.

    No accepted checksum at all means that none is known: the facts of the data set (lines, tokens) decide then.
    """
    wanted = file.get("bytes") if archive else None
    if wanted is not None and path.stat().st_size != wanted:
        raise UsageError(f"{path} has {path.stat().st_size:,} bytes, wanted {wanted:,}; remove it and get it again")
    accepted = file.get("checksums") or []
    kinds = [kind for kind in CHECKSUMS if any(known.startswith(f"{kind}:") for known in accepted)] or ["sha256"]
    got = {kind: checksum(path, kind, unpacked=not archive) for kind in {"sha256", *kinds}}
    found = [f"{kind}:{got[kind]}" for kind in kinds]
    if accepted and not set(found).intersection(accepted):
        what = path if archive else f"{path} (unpacked)"
        has, wanted = ", ".join(found), ", ".join(accepted)
        raise UsageError(
            f"checksum mismatch: {what} has {has}, wanted one of {wanted}; remove the file and get it again"
        )
    return got["sha256"]


def _download(url: str, path: Path, resume: bool, replace: bool) -> None:
    """Download to ``<path>.part``, renamed to ``path`` when it is whole; a file that is there stays, but with
    ``replace``.

    What a cut connection or a killed process left there is kept, and with ``resume`` the next call asks for the rest
    only: where the caller knows a checksum, which tells a file put together from two versions.
    """
    import requests

    cut = (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError)
    part = path.with_name(f"{path.name}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):  # another process may be downloading the same
        if path.is_file() and not replace:
            return
        if not resume:
            part.unlink(missing_ok=True)
        tries = 0
        while True:
            had = _size(part)
            try:
                _get(url, part, had)
                break
            except cut:
                tries = 1 if _size(part) > had else tries + 1
                if tries >= TRIES or not _size(part):
                    raise
                log.info("%s: the connection was cut after %s bytes; going on from there", url, f"{_size(part):,}")
                time.sleep(min(2**tries / 10, 5))
        part.replace(path)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _get(url: str, part: Path, had: int) -> None:
    """Append to the ``had`` bytes of ``part`` what is missing, by one connection; all of it where the server cannot."""
    import requests

    headers = {"Accept-Encoding": "identity"}  # offsets are of the file as it is kept
    if had:
        headers["Range"] = f"bytes={had}-"
    with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        refused = response.status_code == requests.codes.range_not_satisfiable
        if had and refused:  # none is missing, or it is another file
            return _get(url, part, 0)
        response.raise_for_status()
        if not response.headers.get("content-range", "").startswith(f"bytes {had}-"):
            had = 0
        length = response.headers.get("content-length")
        total = had + int(length) if length else None
        with part.open("ab" if had else "wb") as file, progress(f"download {part.stem}", total, had) as bar:
            for block in response.iter_content(_BLOCK):
                file.write(block)
                bar.update(len(block))
    return None
