"""An HTTP server on this machine that serves bytes by path, with ``Range``, and fails as it is told."""

import contextlib
import http.server
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest import mock


@dataclass
class Served:
    """What the server has and does. Paths begin with a slash."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut: dict[str, list[int]] = field(default_factory=dict)  # path to how many bytes each coming answer is cut after
    ranges: bool = True
    always: int | None = None  # an error that answers every request
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path and Range of every request
    address: str = ""


@contextlib.contextmanager
def serving(**files: bytes) -> Iterator[Served]:
    """A server of some files; keyword ``a_zip`` is the path ``/a.zip``."""
    served = Served({f"/{name.replace('_', '.')}": content for name, content in files.items()})

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with contextlib.suppress(ConnectionResetError):  # the client had enough
                super().handle()

        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            served.asked.append((self.path, wanted))
            content = served.files.get(self.path)
            if served.always or content is None:
                self.send_error(served.always or 404)
                return
            begin = 0
            if wanted and served.ranges:
                begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if begin >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - begin))
            self.end_headers()
            cuts = served.cut.get(self.path)
            if cuts:
                self.wfile.write(content[begin : begin + cuts.pop(0)])
                self.close_connection = True
            else:
                self.wfile.write(content[begin:])

        def log_message(self, *_: object) -> None:
            pass

    with (
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server,
        mock.patch.dict(os.environ, NO_PROXY="127.0.0.1", no_proxy="127.0.0.1"),
    ):
        served.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # asks often for its end
        yield served
        server.shutdown()
