"""A server that listens on port 8080 only, as many containers written for SageMaker do.

LOADS_UNTIL is a URL: the server has metrics on port 9100, and loads until the URL is found.
A body is an address, HOST:PORT; the answer is what came of a connection to it, or this
container's NAME for an empty body.
"""

import os
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError
from urllib.request import urlopen


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


def load(until: str) -> None:
    # As Prometheus's exporter does, it answers 200 on every path, `/ping` too.
    metrics = ThreadingHTTPServer(("", 9100), Handler)
    threading.Thread(target=metrics.serve_forever, daemon=True).start()
    while True:
        try:
            urlopen(until, timeout=30).close()
        except HTTPError:
            time.sleep(0.1)
        else:
            return


if "LOADS_UNTIL" in os.environ:
    load(os.environ["LOADS_UNTIL"])
ThreadingHTTPServer(("", 8080), Handler).serve_forever()
