"""A server that listens on port 8080 only, as many containers written for SageMaker do.

PORT         listens elsewhere
A body is an address, HOST:PORT; the answer is what came of a connection to it, or this
container's NAME for an empty body.
"""

import os
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def reach(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(b"GET /_sagehen/health HTTP/1.0\r\n\r\n")
            return connection.recv(100).decode().split("\r\n")[0]
    except OSError as error:
        return type(error).__name__


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer("")

    def do_POST(self) -> None:
        address = self.rfile.read(int(self.headers["content-length"])).decode()
        self.answer(reach(address) if address else f"{os.environ['NAME']} {os.environ['HOME']}")

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None: ...


ThreadingHTTPServer(("", int(os.environ.get("PORT", "8080"))), Handler).serve_forever()
