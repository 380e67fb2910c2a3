"""A container that costs next to nothing: it answers each request of its keep-alive connections."""

import asyncio
import os
from typing import cast

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1"


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._received = b""

    def data_received(self, data: bytes) -> None:
        # Requests come one at a time; their bodies are a few bytes and come with the head.
        self._received += data
        head, ends, body = self._received.partition(b"\r\n\r\n")
        if ends and len(body) >= _length(head):
            self._received = b""
            self._transport.write(ANSWER)


def _length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0


async def main() -> None:
    port = int(os.environ["SAGEMAKER_BIND_TO_PORT"])
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, backlog=512)
    await server.serve_forever()


uvloop.run(main())
