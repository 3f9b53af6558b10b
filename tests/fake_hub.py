"""A model hub on loopback: lists one repository, serves its files, honours ranges, and breaks on demand."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

REPO = "some/model"
COMMIT = "c" * 40


class FakeHub:
    """The hub's state; files over 1000 bytes are large ones, known by SHA-256."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.url = ""
        self.served: list[tuple[str, str | None]] = []
        """File and Range header of each request for a file."""
        self.down = False
        self.cut: dict[str, int] = {}
        """Bytes of a file after which the connection breaks and the hub is down."""
        self.corrupt: set[str] = set()

    def listing(self) -> dict[str, Any]:
        """What the hub's client reads as the model's information."""
        return {"id": REPO, "sha": COMMIT, "siblings": [self._entry(name) for name in self.files]}

    def _entry(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        entry: dict[str, Any] = {"rfilename": name, "size": len(data)}
        entry["blobId"] = hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()
        if len(data) > 1000:
            entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 1}
        return entry

    def names(self) -> list[str]:
        """The files that were asked for, in order."""
        return [name for name, _ in self.served]


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[FakeHub]:
    """A hub with these files, at `url`."""
    hub = FakeHub(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if hub.down:
                self.send_error(500)
            elif self.path.startswith(f"/api/models/{REPO}"):
                self._answer(200, json.dumps(hub.listing()).encode())
            elif self.path.startswith(f"/{REPO}/resolve/{COMMIT}/"):
                self._file(self.path.removeprefix(f"/{REPO}/resolve/{COMMIT}/"))
            else:
                self.send_error(404)

        def _file(self, name: str) -> None:
            wanted = self.headers.get("Range")
            hub.served.append((name, wanted))
            data = hub.files[name]
            if name in hub.corrupt:
                data = data[:-1] + bytes([data[-1] ^ 1])
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
            hub.down = name in hub.cut
            self._answer(206 if wanted else 200, data[start:], hub.cut.get(name))

        def _answer(self, status: int, body: bytes, cut: int | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:cut])
            self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: tests read what was served."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
