"""A container over HTTP: it answers with the body in upper case, after DELAY seconds."""

import os
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(200 if self.path == "/ping" else 404, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        time.sleep(float(os.environ.get("DELAY", "0")))
        self.answer(200, body.upper())

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Handler).serve_forever()
