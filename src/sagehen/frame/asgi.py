"""Reads ASGI requests, with their bodies bounded each and together, and sends responses; S3's
bodies stream instead."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from starlette import responses
from starlette.types import Receive, Scope

from sagehen.base.errors import Unavailable
from sagehen.wire.http import Request, Response

__all__ = [
    "BodyBudget",
    "BodyTooLarge",
    "ClientGone",
    "request_head",
    "stream_body",
    "whole_response",
]


def request_head(scope: Scope) -> Request:
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


def whole_response(response: Response, method: str = "POST") -> responses.Response:
    """Returns what sends a response whose body is in memory."""
    assert isinstance(response.body, bytes)
    # The length is that of the body which HEAD leaves out.
    headers = {"content-length": str(len(response.body))}
    headers |= {name.lower(): value for name, value in response.headers.items()}
    body = b"" if method == "HEAD" else response.body
    return responses.Response(body, response.status, headers)


class ClientGone(Exception):
    """The client closed the connection before its request was whole."""


class BodyTooLarge(Exception):
    """The body exceeds the bound of its request."""


async def stream_body(receive: Receive) -> AsyncGenerator[bytes]:
    """Yields the non-empty pieces of a body; raises ClientGone."""
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if piece := message.get("body", b""):
            yield piece
        has_more = message.get("more_body", False)


class BodyBudget:
    """The bytes that all bodies together may take, each until its request is answered."""

    def __init__(self, max_bytes: int) -> None:
        self.held_bytes = 0
        self.hits = 0
        """requests refused by this budget or a part of it"""
        self.max_bytes = max_bytes
        self._parent: BodyBudget | None = None
        self._refusal = (
            f"The bodies of all requests together pass {max_bytes} bytes "
            "(max_held_control_body_bytes). Try again in a moment."
        )

    def part(self, max_bytes: int, refusal: str) -> "BodyBudget":
        """Makes a budget for some requests, which count here too; `refusal` is its
        error message."""
        part = BodyBudget(max_bytes)
        part._parent = self
        part._refusal = refusal
        return part

    @asynccontextmanager
    async def read(self, receive: Receive, most_bytes: int) -> AsyncIterator[bytes]:
        """Raises BodyTooLarge over `most_bytes`, ClientGone, and Unavailable if all bodies take too
        much."""
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
            (self._parent or self).hits += 1
            raise Unavailable(self._refusal)
        if self._parent is not None:
            self._parent._take(size)
        self.held_bytes += size

    def _give_back(self, size: int) -> None:
        if self._parent is not None:
            self._parent._give_back(size)
        self.held_bytes -= size
