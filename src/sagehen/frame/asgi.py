"""What an ASGI server hands over, as the protocols see it.

Reads the bodies of requests: whole, within what one and all of them together may take of memory.

S3's bodies stream, once their signature is known to be right.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from starlette.types import Receive, Scope

from sagehen.base.errors import Unavailable
from sagehen.wire.http import Request

__all__ = ["BodyBudget", "BodyTooLarge", "ClientGone", "request_head", "stream_body"]


def request_head(scope: Scope) -> Request:
    """The request without its body."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return Request(
        method=scope["method"],
        raw_path=scope["raw_path"].decode("latin-1"),
        raw_query=scope["query_string"].decode("latin-1"),
        headers=headers,
    )


class ClientGone(Exception):
    """The client closed the connection before its request was whole."""


class BodyTooLarge(Exception):
    """The body is longer than this request's may be."""


async def stream_body(receive: Receive) -> AsyncGenerator[bytes]:
    """The pieces of a body as they come, none of them empty; raises ClientGone."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if piece := message.get("body", b""):
            yield piece
        more = message.get("more_body", False)


class BodyBudget:
    """The bytes that the bodies of all requests may take together, and take now.

    A body counts from its first byte until its request is answered.
    """

    def __init__(self, max_bytes: int) -> None:
        self.held_bytes = 0
        self.hits = 0
        """How often a request was refused for it, or for a part of it."""
        self.max_bytes = max_bytes
        self._whole: BodyBudget | None = None
        self._refusal = (
            f"The bodies of all requests together pass {max_bytes} bytes "
            "(max_held_control_body_bytes). Try again in a moment."
        )

    def part(self, max_bytes: int, refusal: str) -> "BodyBudget":
        """A budget for requests of one kind, which count here too; `refusal` is told beyond it."""
        part = BodyBudget(max_bytes)
        part._whole = self
        part._refusal = refusal
        return part

    @asynccontextmanager
    async def read(self, receive: Receive, most_bytes: int) -> AsyncIterator[bytes]:
        """The whole body; it may be used while the block runs.

        Raises:
            BodyTooLarge: it has more than `most_bytes`.
            ClientGone: the client went before it was whole.
            Unavailable: all bodies together would take too much.
        """
        pieces: list[bytes] = []
        size = 0
        try:
            async with aclosing(stream_body(receive)) as stream:
                async for piece in stream:
                    if size + len(piece) > most_bytes:
                        raise BodyTooLarge
                    self._take(len(piece))
                    size += len(piece)
                    pieces.append(piece)
            body = b"".join(pieces)
            pieces.clear()
            yield body
        finally:
            self._give_back(size)

    def _take(self, size: int) -> None:
        if self.held_bytes + size > self.max_bytes:
            (self._whole or self).hits += 1
            raise Unavailable(self._refusal)
        if self._whole is not None:
            self._whole._take(size)
        self.held_bytes += size

    def _give_back(self, size: int) -> None:
        if self._whole is not None:
            self._whole._give_back(size)
        self.held_bytes -= size
