"""The least that a gateway and a model server over HTTP/1.1 can do: a bound for comparisons.

    python3 benchmarks/minimal_gateway.py gateway PORT SOCKET
    python3 benchmarks/minimal_gateway.py container SOCKET MODEL

The gateway parses requests, sends each over an idle Unix connection to the only container, and
relays the answer. It checks no signature, routes nothing, counts nothing, limits nothing. The
container predicts all rows that came in one turn of its event loop in one call, on that loop.
"""

import asyncio
import os
import sys
from functools import partial
from typing import Any

import httptools
import uvloop

_HEAD = (
    b"POST /invocations HTTP/1.1\r\nHost: c\r\nContent-Type: text/csv\r\nContent-Length: %d\r\n\r\n"
)
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/csv; charset=utf-8\r\nContent-Length: %d\r\n\r\n"


class Message(asyncio.Protocol):
    """Receives requests or answers."""

    parser_of: Any

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.parser = self.parser_of(self)
        self.body = b""

    def connection_lost(self, exc: Exception | None) -> None:
        # Breaks the cycle.
        self.parser = None

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.body += data


class Client(Message):
    parser_of = httptools.HttpRequestParser

    def __init__(self, upstreams: "Upstreams") -> None:
        self.upstreams = upstreams

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        upstream = self.upstreams.idle.pop() if self.upstreams.idle else None
        if upstream is None:
            self.upstreams.open(self, body)
        else:
            upstream.ask(self, body)


class UpstreamConnection(Message):
    parser_of = httptools.HttpResponseParser

    def __init__(self, upstreams: "Upstreams") -> None:
        self.upstreams = upstreams

    def ask(self, client: Client, body: bytes) -> None:
        self.client = client
        self.transport.write(_HEAD % len(body) + body)

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        self.upstreams.idle.append(self)
        if not self.client.transport.is_closing():
            self.client.transport.write(_ANSWER % len(body) + body)


class Upstreams:
    def __init__(self, path: str) -> None:
        self.path = path
        self.idle: list[UpstreamConnection] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def open(self, client: Client, body: bytes) -> None:
        task = asyncio.get_running_loop().create_task(self._open(client, body))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _open(self, client: Client, body: bytes) -> None:
        loop = asyncio.get_running_loop()
        _, upstream = await loop.create_unix_connection(
            partial(UpstreamConnection, self), self.path
        )
        upstream.ask(client, body)


class Caller(Message):
    """A gateway's connection, in the container."""

    parser_of = httptools.HttpRequestParser

    def __init__(self, batch: "Batch") -> None:
        self.batch = batch

    def on_message_complete(self) -> None:
        body, self.body = self.body, b""
        self.batch.add(self, body)


class Batch:
    """The rows of one turn of the event loop."""

    def __init__(self, model: str) -> None:
        import numpy
        import xgboost

        self.numpy = numpy
        self.booster = xgboost.Booster()
        self.booster.load_model(model)
        self.booster.set_param({"nthread": 1})
        self.waiting: list[tuple[Caller, bytes]] = []

    def add(self, caller: Caller, row: bytes) -> None:
        if not self.waiting:
            asyncio.get_running_loop().call_soon(self.predict)
        self.waiting.append((caller, row))

    def predict(self) -> None:
        waiting, self.waiting = self.waiting, []
        rows = [row.split(b",") for _, row in waiting]
        predictions = self.booster.inplace_predict(self.numpy.array(rows, dtype=self.numpy.float32))
        for (caller, _), number in zip(waiting, predictions.tolist(), strict=True):
            body = b"%r" % number
            if not caller.transport.is_closing():
                caller.transport.write(_ANSWER % len(body) + body)


async def gateway(port: int, path: str) -> None:
    upstreams = Upstreams(path)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Client, upstreams), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


async def container(path: str, model: str) -> None:
    batch = Batch(model)
    draft = f"{path}.new"
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(partial(Caller, batch), draft, backlog=1024)
    # It is there when it answers.
    os.rename(draft, path)
    await server.serve_forever()


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "gateway":
        uvloop.run(gateway(int(words[0]), words[1]))
    else:
        uvloop.run(container(words[0], words[1]))
