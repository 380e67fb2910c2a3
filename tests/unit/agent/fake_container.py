"""A container that keeps SageMaker's contract, and misbehaves as its environment tells it.

FAKE_EXIT=1          ends at once, with an exception on its log
FAKE_EXIT_ONCE=1     ends at once the first time only
FAKE_UNHEALTHY=1     never passes /ping
FAKE_CAPACITY=n      answers 507 to more than n models
FAKE_OTHER_PORT=1    listens, but not where it is told to
FAKE_SLOTS=n         says with /ping that it has n slots; the control file `slots` overrules it
FAKE_LAST_WORK=1     has something to finish when it is to end: until `finished` is there
FAKE_CONTROL=folder  fails /ping while `unhealthy` is there; a model with a file `slow` waits for
                     `go`; `started` is written to with each start
A model with a file `refuse` is not loaded. POST /crash ends it; POST /forget drops its models.
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

env = os.environ
control = Path(env.get("FAKE_CONTROL", env["HOME"]))
models: dict[str, str] = {}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/ping":
            bad = env.get("FAKE_UNHEALTHY") or (control / "unhealthy").exists()
            return self.answer(503 if bad else 200)
        name = self.path.removeprefix("/models").strip("/")
        return self.answer(404 if name and name not in models else 200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if self.path == "/crash":
            os._exit(9)
        if self.path == "/forget":
            models.clear()
            return self.answer(200)
        wanted = json.loads(body)
        folder = Path(wanted["url"])
        if (folder / "refuse").exists():
            return self.answer(500, b"ValueError: no such tree")
        while (folder / "slow").exists() and not (control / "go").exists():
            time.sleep(0.01)
        if len(models) >= int(env.get("FAKE_CAPACITY", "1000")):
            return self.answer(507, b"out of memory")
        models[wanted["model_name"]] = wanted["url"]
        return self.answer(200)

    def do_DELETE(self) -> None:
        known = models.pop(self.path.removeprefix("/models/"), None)
        self.answer(200 if known else 404)

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if self.path == "/ping" and "FAKE_SLOTS" in env:
            said = control / "slots"
            slots = said.read_text() if said.exists() else env["FAKE_SLOTS"]
            self.send_header("X-Sagehen-Slots", slots)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


def finish(*_: object) -> None:
    if env.get("FAKE_LAST_WORK"):
        (control / "finishing").touch()
        while not (control / "finished").exists():
            time.sleep(0.005)
    sys.exit(0)


def main() -> None:
    sys.stdout.write(f"fake container starts {sorted(env)}\n")
    with (control / "started").open("a") as file:
        file.write("x")
    once = Path(env["HOME"], "once")
    if env.get("FAKE_EXIT") or (env.get("FAKE_EXIT_ONCE") and not once.exists()):
        once.touch()
        raise ImportError("No module named 'houses'")
    signal.signal(signal.SIGTERM, finish)
    port = 0 if env.get("FAKE_OTHER_PORT") else int(env["SAGEMAKER_BIND_TO_PORT"])
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    (control / "port").write_text(str(server.server_port))
    server.serve_forever()


main()
