"""The cost of a server connection's HTTP: the gateway's and the model server's, next to the parser.

    python3 benchmarks/http1.py [--before ../old/src] [--seconds 1] [--rounds 5] [--save]

Processor time, without sockets: a connection gets one whole request at a time, its handler answers
at once, and its transport drops the answer. The parser's rows are httptools, which both use, with
the same bytes written for each request. `--before` measures another checkout, in turns with this.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httptools
from frame import heading, keep, options, row_of
from machine import describe_machine

BODY = b"1994,3188,5,1.5,1.62,3"
ANSWER = b"[240.5]"
TO_GATEWAY = [
    "POST /endpoints/house/invocations HTTP/1.1",
    "Host: 127.0.0.1:9000",
    "Accept-Encoding: identity",
    "Content-Type: text/csv",
    "User-Agent: Boto3/1.42.1 md/Botocore#1.42.1 ua/2.1 os/linux lang/python#3.11.2",
    "X-Amz-Date: 20261101T093000Z",
    "Authorization: AWS4-HMAC-SHA256 Credential=AKSHBENCHMARK/20261101/us-east-1/sagemaker/"
    f"aws4_request, SignedHeaders=content-type;host;x-amz-date, Signature={'0' * 64}",
    "amz-sdk-invocation-id: 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
    "amz-sdk-request: attempt=1",
    f"Content-Length: {len(BODY)}",
]
"""as boto3 sends it"""
TO_MODEL_SERVER = [
    "POST /invocations HTTP/1.1",
    "Host: localhost",
    f"Content-Length: {len(BODY)}",
    "Content-Type: text/csv",
    "Accept: application/json",
]
"""as the gateway sends it"""
ROUND = 1000
"""Requests between two looks at the clock."""


def main() -> None:
    parser = options(__doc__, seconds=1)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each side")
    parser.add_argument("--before", type=Path, help="the `src` of another checkout")
    parser.add_argument("--measure", action="store_true", help="only print JSON, for this script")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(asyncio.run(measured(arguments.seconds))))
        return
    checkouts = {"before": arguments.before, "now": None} if arguments.before else {"now": None}
    least: dict[tuple[str, str], float] = {}
    for _ in range(arguments.rounds):
        for version, source in checkouts.items():
            for side, cost in measured_apart(source, arguments.seconds).items():
                key = (side, version)
                least[key] = min(cost, least.get(key, cost))
    lines = [*heading("Cost of a server connection"), *describe_machine(load=False), ""]
    lines += [row_of(["side", *(f"{version}: µs a request" for version in checkouts)])]
    lines += [row_of(["---"] * (1 + len(checkouts)))]
    for side in dict.fromkeys(side for side, _ in least):
        lines.append(row_of([side, *(f"{least[side, version]:.2f}" for version in checkouts)]))
    report = "\n".join([*lines, ""])
    print(report)
    if arguments.save:
        keep(report, "http1")


def measured_apart(source: Path | None, seconds: float) -> dict[str, float]:
    """Measures in a process of its own, which may import another checkout."""
    command = [sys.executable, __file__, "--measure", "--seconds", str(seconds)]
    paths = [str(source.resolve())] if source else []
    paths += [path for path in (os.environ.get("PYTHONPATH"),) if path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    finished = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    costs: dict[str, float] = json.loads(finished.stdout)
    return costs


async def measured(seconds: float) -> dict[str, float]:
    """Microseconds a request, by side."""
    to_gateway, to_model_server = whole(TO_GATEWAY), whole(TO_MODEL_SERVER)
    return {
        "httptools alone, a caller's request": microseconds(ParserOnly(), to_gateway, seconds),
        "the gateway's connection": microseconds(gateway(), to_gateway, seconds),
        "httptools alone, a gateway's request": microseconds(
            ParserOnly(), to_model_server, seconds
        ),
        "the model server's connection": microseconds(model_server(), to_model_server, seconds),
        "the model server's connection, all heads different": microseconds(
            model_server(), to_model_server, seconds, all_different=True
        ),
    }


def whole(head: list[str]) -> bytes:
    return "\r\n".join([*head, "", ""]).encode() + BODY


def microseconds(
    connection: Any, request: bytes, seconds: float, all_different: bool = False
) -> float:
    """The least processor time of a round: what else the machine does only adds to it."""
    transport = Transport()
    connection.connection_made(transport)
    receive: Callable[[bytes], None] = connection.data_received
    least, end, sent = float("inf"), time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        numbers = range(sent, sent := sent + ROUND)
        requests = [_with_id(request, number) if all_different else request for number in numbers]
        start = time.process_time()
        for piece in requests:
            receive(piece)
        least = min(least, time.process_time() - start)
    if not transport.last.startswith(b"HTTP/1.1 200 OK\r\n") or not transport.last.endswith(ANSWER):
        raise AssertionError(f"answered with {transport.last!r}")
    return least / ROUND * 1e6


def _with_id(request: bytes, number: int) -> bytes:
    line = b"\r\nX-Amzn-SageMaker-Inference-Id: %09d\r\n\r\n"
    return request.replace(b"\r\n\r\n", line % number, 1)


class Transport:
    """Drops what is written, but the last."""

    last = b""

    def write(self, data: bytes) -> None:
        self.last = data

    def set_write_buffer_limits(self, high: int) -> None: ...

    def is_closing(self) -> bool:
        return False


class ParserOnly:
    """Parses requests, and writes the same answer to each."""

    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)

    def connection_made(self, transport: Transport) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self.data_received = self._parser.feed_data

    def on_url(self, url: bytes) -> None:
        self._headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_body(self, body: bytes) -> None: ...

    def on_message_complete(self) -> None:
        self._transport.write(self.answer)


def gateway() -> Any:
    from sagehen.gateway.client.connection import Connection

    connection: Any = Connection
    return connection(GatewayHost())


class GatewayHost:
    """Answers every request, without the gateway's own work."""

    limits = SimpleNamespace(head_bytes=64 * 1024, connections=1000)
    draining = False
    now = 1000.0
    date_line = b"Date: Sun, 01 Nov 2026 09:30:00 GMT\r\n"
    _requests = 0

    def __init__(self) -> None:
        self.dispatch = AtOnce

    def admit(self, connection: object) -> bool:
        return True

    def went_idle(self, connection: object) -> None: ...

    def went_busy(self, connection: object) -> None: ...

    def next_request_id(self) -> bytes:
        self._requests += 1
        return b"%b%012x" % (b"6ba7b810-9dad-11d1-80b4-", self._requests)


class AtOnce:
    """Answers when the request is whole."""

    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange

    def begin(self) -> None: ...

    def body(self, data: bytes) -> None: ...

    def whole(self) -> None:
        self._exchange.answer(200, b"Content-Type: application/json\r\n", ANSWER)


def model_server() -> Any:
    from sagehen.containers.modelserver.contract import ModelAnswer, ModelRequest
    from sagehen.containers.modelserver.serving.connection import Connection
    from sagehen.containers.modelserver.serving.server import ModelServer

    def answer(request: ModelRequest) -> None:
        # As models do, by content type and Accept.
        accepts_csv = request.header(b"content-type") == "text/csv"
        status = 200 if accepts_csv and request.header(b"accept") else 415
        request.respond(ModelAnswer(status, ANSWER, "application/json"))

    return Connection(ModelServer(answer, max_body_bytes=2**20))


if __name__ == "__main__":
    main()
