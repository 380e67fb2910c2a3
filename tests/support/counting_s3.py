"""An S3 with a few objects in files, which counts the reads of each."""

import hashlib
import re
import threading
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["CountingS3"]

PIECE_BYTES = 2**20


class CountingS3:
    """Serves `files` by path; use it in a `with` block. The bucket is `counted`."""

    def __init__(self) -> None:
        self.files: dict[str, Path] = {}
        self.reads: Counter[str] = Counter()
        """GETs by path, without HEADs"""
        self.bytes = 0
        self._etags: dict[Path, str] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> "CountingS3":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def options(self) -> dict[str, str]:
        """`object_store_options` of `s3://counted`."""
        return {
            "endpoint": f"http://127.0.0.1:{self._server.server_port}",
            "access_key_id": "any",
            "secret_access_key": "any",
            "region": "us-east-1",
            "virtual_hosted_style_request": "false",
        }

    def put(self, key: str, file: Path) -> None:
        self.files[f"/counted/{key}"] = file

    def etag(self, file: Path) -> str:
        with self._lock:
            if file not in self._etags:
                with file.open("rb") as content:
                    self._etags[file] = hashlib.file_digest(content, "md5").hexdigest()
            return self._etags[file]

    def note(self, path: str, size: int) -> None:
        with self._lock:
            self.reads[path] += 1
            self.bytes += size


def _handler(store: CountingS3) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def _answer(self, with_body: bool) -> None:
            path = self.path.partition("?")[0]
            file = store.files.get(path)
            if file is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            size = file.stat().st_size
            first, last = self._range(size)
            is_part = "Range" in self.headers
            self.send_response(206 if is_part else 200)
            self.send_header("Content-Length", str(last - first + 1))
            if is_part:
                self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("ETag", f'"{store.etag(file)}"')
            self.send_header("Last-Modified", formatdate(file.stat().st_mtime, usegmt=True))
            self.end_headers()
            if with_body:
                store.note(path, last - first + 1)
                self._send(file, first, last)

        def _range(self, size: int) -> tuple[int, int]:
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if found is None:
                return 0, size - 1
            return int(found[1]), min(size - 1, int(found[2]) if found[2] else size - 1)

        def _send(self, file: Path, first: int, last: int) -> None:
            with file.open("rb") as content:
                content.seek(first)
                remaining = last - first + 1
                while remaining > 0 and (piece := content.read(min(PIECE_BYTES, remaining))):
                    self.wfile.write(piece)
                    remaining -= len(piece)

        def log_message(self, *args: object) -> None: ...

    return Handler
