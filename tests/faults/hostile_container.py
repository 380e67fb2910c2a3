"""A container that does what its caller wishes, to itself and to the machine: the body names it."""

import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SPINNING = f"while True: pass  # hostile {os.getpid()}"
LEFT = f"sleep 7531.{os.getpid()}"
"""The number tells them from another container's."""


def leak() -> str:
    kept = []
    while True:
        kept.append(bytearray(b"x") * (8 << 20))


def fork() -> str:
    """Far more than it may have, and no more than this machine can bear."""
    try:
        for _ in range(400):
            if os.fork() == 0:
                time.sleep(1000)
        time.sleep(1000)
    except OSError as error:
        return str(error)
    return "no limit"


def spin() -> str:
    for _ in range(8):
        subprocess.Popen([sys.executable, "-c", SPINNING])
    return SPINNING


def shout() -> str:
    text = ("x" * 1023 + "\n").encode() * 1024
    for _ in range(int(os.environ.get("SHOUT_MEBIBYTES", "64"))):
        os.write(1, text)
    return "said"


def nod() -> str:
    return "here"


def leave() -> str:
    """In a session of its own, with no parent and nothing that says where it comes from."""
    command = ["/usr/bin/env", "-i", "setsid", "sh", "-c", f"setsid {LEFT} & exec {LEFT}"]
    subprocess.Popen(command)
    return f"left {LEFT}"


def crash() -> str:
    os.abort()


WISHES = {wish.__name__: wish for wish in (leak, fork, spin, shout, nod, leave, crash)}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer("")

    def do_POST(self) -> None:
        wish = self.rfile.read(int(self.headers["content-length"])).decode()
        self.answer(WISHES[wish]())

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: object) -> None:
        pass


def end(*_: object) -> None:
    os.write(1, b"asked to end\n")
    os._exit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
