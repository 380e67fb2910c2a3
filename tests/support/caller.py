"""A client's side of a gateway's connection, without a socket: what it sends comes in the very
pieces that a test has cut it into, and all that it is sent is looked at."""

import asyncio
import re
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

__all__ = ["Answer", "Caller", "answers_in", "cut", "cuts", "some"]

some = settings(
    max_examples=100,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
cuts = st.lists(st.integers(0, 10_000), max_size=6)
"""Where bytes are cut into pieces."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class Caller(asyncio.Transport):
    """The transport of one `Connection`; it fails when anything is written behind an end."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self.received = bytearray()
        self.paused = False
        self.has_ended = False
        """No more can be written."""
        self.has_closed = False
        connection.connection_made(self)

    def write(self, data: bytes) -> None:  # type: ignore[override]
        assert not self.has_ended, f"written behind the end: {data!r}"
        self.received += data

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        self.has_ended = self.has_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.has_closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


def answers_in(received: bytes) -> list[Answer]:
    """The final answers; fails unless `received` is nothing but whole answers."""
    found = []
    rest = bytes(received)
    while rest:
        head, end, rest = rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        said = re.fullmatch(r"HTTP/1\.1 ([1-5][0-9]{2}) [A-Za-z -]+", first)
        assert end, f"half an answer: {head!r}"
        assert said, f"not an answer: {head!r}"
        fields = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in fields}
        assert len(headers) == len(fields), f"repeated: {head!r}"
        size = int(headers.get("content-length", "0"))
        body, rest = rest[:size], rest[size:]
        assert len(body) == size, f"half a body: {body!r}"
        if int(said[1]) >= 200:
            found.append(Answer(int(said[1]), headers, body))
    return found


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """`data` in pieces, cut at `places` (modulo its length)."""
    ends = sorted({place % len(data) for place in places} - {0})
    return [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]
