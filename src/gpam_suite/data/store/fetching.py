"""HTTP downloads that go on where they were cut off; a downloader for pooch."""

import errno
import logging
import shutil
import time
from pathlib import Path
from typing import Any

import pooch
import requests

from gpam_suite.data.progress import progress

log = logging.getLogger(__name__)

TRIES = 5  # connections in a row that bring nothing new
_BLOCK = 1 << 15  # at most so much is lost when a connection is cut
_PARTIAL, _RANGE_NOT_SATISFIABLE = 206, 416


class ResumingDownloader(pooch.HTTPDownloader):
    """Downloads to ``<kept>.part`` and renames it when it is whole.

    What a cut connection or a killed process left there is kept, and the next call asks for the rest only (``Range``):
    where the caller knows a checksum, which tells a file put together from two versions.

    Args:
        kept: where the download will be kept in the end; its folder holds the part.
        known: whether the caller will compare a checksum of the content.
    """

    def __init__(self, kept: Path, known: bool, timeout: float = 30) -> None:
        super().__init__(progressbar=True, chunk_size=_BLOCK, timeout=timeout)
        self.part, self.known = kept.with_name(f"{kept.name}.part"), known

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> bool | None:
        if check_only:
            return super().__call__(url, output_file, pooch, check_only=True)
        tries = 0
        if not self.known:
            self.part.unlink(missing_ok=True)
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
        return None

    def _had(self) -> int:
        return self.part.stat().st_size if self.part.is_file() else 0

    def _get(self, url: str) -> None:
        """One connection; returns when the part is whole."""
        had, headers = self._had(), {"Accept-Encoding": "identity"}  # offsets are of the file as it is kept
        if had:
            headers["Range"] = f"bytes={had}-"
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
            self._write(response, had)
        return None

    def _write(self, response: requests.Response, had: int) -> None:
        length = response.headers.get("content-length")
        rest = int(length) if length else None
        free = shutil.disk_usage(self.part.parent).free
        if rest is not None and rest > free:
            reason = f"{rest:,} more bytes are wanted and {free:,} are free"
            raise OSError(errno.ENOSPC, reason, str(self.part))
        with (
            self.part.open("r+b" if had else "wb") as file,
            progress(f"download {self.part.stem}", None if rest is None else had + rest, initial=had) as bar,
        ):
            file.seek(had)
            for block in response.iter_content(_BLOCK):
                file.write(block)
                bar.update(len(block))
