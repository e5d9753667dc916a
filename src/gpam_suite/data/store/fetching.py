"""HTTP downloads that go on where they were cut off; a downloader for pooch."""

import json
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import pooch
import requests

from gpam_suite.data.progress import progress
from gpam_suite.data.store.disk import full, is_full

log = logging.getLogger(__name__)

TRIES = 5  # connections in a row that bring nothing new
_BLOCK = 1 << 15  # at most so much is lost when a connection is cut
_PARTIAL, _RANGE_NOT_SATISFIABLE = 206, 416


class ResumingDownloader(pooch.HTTPDownloader):
    """Downloads to ``<kept>.part`` and renames it when it is whole.

    What a cut connection or a killed process left there is kept, and the next call asks for the rest only (``Range``).
    Where the content is not known by its checksum, the rest is asked for on condition that the server still has the
    same version (``If-Range``).

    Args:
        kept: where the download will be kept in the end; its folder holds the part.
        known: whether the caller will check the content.
    """

    def __init__(self, kept: Path, known: bool, timeout: float = 30) -> None:
        super().__init__(progressbar=True, chunk_size=_BLOCK, timeout=timeout)
        self.part, self.known = kept.with_name(f"{kept.name}.part"), known
        self.version = kept.with_name(f"{kept.name}.part.json")  # the server's mark of the content begun

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> bool | None:
        if check_only:
            return super().__call__(url, output_file, pooch, check_only=True)
        tries = 0
        while True:
            had = self._had()
            try:
                self._get(url)
                break
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError):
                tries = 1 if self._had() > had else tries + 1
                if tries >= TRIES or not self._had():
                    raise
                log.info("%s: the connection was cut after %s bytes; going on from there", url, f"{self._had():,}")
                time.sleep(min(2**tries / 10, 5))
        self.part.replace(output_file)
        self.version.unlink(missing_ok=True)
        return None

    def _had(self) -> int:
        return self.part.stat().st_size if self.part.is_file() else 0

    def _get(self, url: str) -> None:
        """One connection; returns when the part is whole."""
        had, headers = self._had(), {"Accept-Encoding": "identity"}  # offsets are of the file as it is kept
        if had and (condition := self._condition(url)) is not None:
            headers |= {"Range": f"bytes={had}-"} | condition
        with requests.get(url, headers=headers, stream=True, timeout=self.kwargs["timeout"]) as response:
            if response.status_code == _RANGE_NOT_SATISFIABLE:
                if response.headers.get("content-range") == f"bytes */{had}":
                    return
                self.part.unlink()  # it is longer than the file: begin again
                return self._get(url)
            response.raise_for_status()
            if response.status_code != _PARTIAL or not response.headers.get("content-range", "").startswith(
                f"bytes {had}-"
            ):
                had = 0
            self._keep_version(url, response)
            self._write(response, had)
        return None

    def _condition(self, url: str) -> dict[str, str] | None:
        """The header that makes the server send a part of the same content only; None where nothing can."""
        if self.known:
            return {}
        try:
            version = json.loads(self.version.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return {"If-Range": version["mark"]} if version["url"] == url and version["mark"] else None

    def _keep_version(self, url: str, response: requests.Response) -> None:
        mark = response.headers.get("etag", "")
        if not mark or mark.startswith("W/"):  # a weak mark does not stand for the bytes
            mark = response.headers.get("last-modified", "")
        self.version.write_text(json.dumps({"url": url, "mark": mark}), encoding="utf-8")

    def _write(self, response: requests.Response, had: int) -> None:
        length = response.headers.get("content-length")
        rest = int(length) if length else None
        free = shutil.disk_usage(self.part.parent).free
        if rest is not None and rest > free:
            raise full(self.part.parent, f"the rest of {self.part.stem} has {rest:,} bytes and {free:,} are free")
        try:
            with (
                self.part.open("r+b" if had else "wb") as file,
                progress(f"download {self.part.stem}", None if rest is None else had + rest, initial=had) as bar,
            ):
                file.seek(had)
                for block in response.iter_content(_BLOCK):
                    file.write(block)
                    bar.update(len(block))
        except OSError as error:
            if is_full(error):
                raise full(self.part.parent, f"what came of {self.part.stem} is kept") from error
            raise
