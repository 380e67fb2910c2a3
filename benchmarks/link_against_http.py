"""The link between gateway and model server, next to HTTP/1.1 over the same Unix socket.

    .venv/bin/python benchmarks/link_against_http.py [--seconds 0.2] [--blocks 5] [--save]

One gateway and the same model servers; only the scheme of the route's address differs. Both sides
take short turns (short_turns.py). Rows of an XGBoost model at 1, 8, 64 and 256 connections; bodies
of 1 KiB, 64 KiB and 5 MB that a script returns; streams of 64 pieces of 4 KiB. Signatures, routing
and counting are on. Processor time is that of the gateway and all processes of the containers.
"""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from frame import heading, keep, options
from house import check, make_model
from link_sides import ACCESS_KEY, SECRET_KEY
from machine import describe_machine
from other_load import OtherLoad
from short_turns import Contender, compare, describe
from sides import HERE, Server, Side

CONNECTIONS = (1, 8, 64, 256)
BODIES = {"1 KiB": (1024, 8), "64 KiB": (64 * 1024, 8), "5 MB": (5_000_000, 2)}
"""bytes and connections"""
SCRIPT = """
def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    if accept == "application/x-stream":
        return (bytes(4096) for _ in range(64)), "application/octet-stream"
    return body, "application/octet-stream"
"""


def main() -> None:
    parser = options(__doc__, seconds=0.2)
    parser.add_argument("--blocks", type=int, default=5)
    arguments = parser.parse_args()
    other_load = OtherLoad(ignored=arguments.at_once)
    with tempfile.TemporaryDirectory(prefix="sgh-") as name:
        folder = Path(name)
        for kind in ("rows", "bytes"):
            (folder / kind / "model").mkdir(parents=True)
        model, rows, expected = make_model(folder)
        shutil.copy(model, folder / "rows" / "model" / "xgboost-model")
        code = folder / "bytes" / "model" / "code"
        code.mkdir()
        (code / "inference.py").write_text(SCRIPT)
        measure = partial(
            compare, seconds=arguments.seconds, blocks=arguments.blocks, other_load=other_load
        )
        lines = [*heading("Link and HTTP/1.1"), *describe_machine()]
        with server(folder) as running:
            contenders = pair(running, "rows", {"Content-Type": "text/csv"})
            for side, _ in contenders:
                check(side, rows, expected)
            lines += ["", "## Rows", "", *describe(measure(contenders, rows[0], CONNECTIONS))]
            for size, (count, connections) in BODIES.items():
                contenders = pair(running, "bytes", {"Content-Type": "application/octet-stream"})
                results = measure(contenders, "x" * count, [connections])
                lines += ["", f"## Bodies of {size}, both ways", "", *describe(results)]
            fields = {"X-Amzn-SageMaker-Accept": "application/x-stream"}
            contenders = pair(running, "bytes", fields, STREAM)
            lines += ["", "## Streams", "", *describe(measure(contenders, "x", [8]))]
        lines.insert(len(heading("")) + 3, other_load.describe())
    report = "\n".join([*lines, ""])
    print(report)
    if arguments.save:
        keep(report, "link-against-http")


INVOKE, STREAM = "invocations", "invocations-response-stream"


def pair(
    running: Server, name: str, fields: dict[str, str], action: str = INVOKE
) -> list[Contender]:
    """Both endpoints of one model server, HTTP/1.1 first."""
    return [
        (
            Side(
                label,
                *running.address,
                partial(request, running, f"/endpoints/{name}-{kind}/{action}", fields),
            ),
            running,
        )
        for label, kind in (("HTTP/1.1", "http"), ("link", "link"))
    ]


def request(running: Server, path: str, fields: dict[str, str], body: str) -> bytes:
    return running.signed(path, dict(fields), body)


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    words = [sys.executable, str(HERE / "link_sides.py"), str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise SystemExit("The server did not start.")
            keys = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY}
            yield Server(url, keys, folder / "home", process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


if __name__ == "__main__":
    main()
