"""Requests that a model server receives over a link."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sagehen.containers.modelserver.contract import ModelRequest
from sagehen.containers.modelserver.serving.body_budget import BodyReservation
from sagehen.http1.fields import ParsedLines, joined_raw_fields
from sagehen.link.frames import LinkError
from sagehen.link.stream import BodyReceiver

if TYPE_CHECKING:
    from sagehen.containers.modelserver.serving.link_connection import LinkConnection

__all__ = ["LargeRequest", "LinkRequest", "ParsedLinkHeads"]

MAX_KNOWN_HEADS = 4096
MAX_KNOWN_HEAD_BYTES = 2048


class LinkRequest(ModelRequest):
    """A whole request with its number."""

    __slots__ = ("_connection", "number")

    def __init__(
        self,
        connection: "LinkConnection",
        number: int,
        path: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
    ) -> None:
        super().__init__("POST", path, headers, body, connection.answered)
        self._connection = connection
        self.number = number

    def mark_begun(self) -> None:
        # The number of an abandoned request may be another's by now.
        if not self.abandoned:
            self._connection.mark_begun(self.number)


class LargeRequest:
    """A request whose body is being received."""

    __slots__ = ("_size", "body", "head", "parts", "received", "receiving_since", "reservation")

    def __init__(self, head: bytes, size: int, body: BodyReceiver) -> None:
        self.head = head
        self._size = size
        self.body = body
        self.parts: list[bytes] = []
        self.received = 0
        self.reservation: BodyReservation | None = None
        self.receiving_since: float | None = None
        """the first sweep since the last piece"""

    @property
    def waits_for_memory(self) -> bool:
        return self.reservation is not None and not self.reservation.granted

    def add(self, data: bytes, is_last: bool) -> None:
        """Raises LinkError."""
        self.received += len(data)
        self.receiving_since = None
        if self.received > self._size or (is_last and self.received < self._size):
            raise LinkError(f"A body of {self._size} bytes was announced; {self.received} came.")
        self.body.received(len(data), is_last)
        self.parts.append(data)

    def granted(self) -> None:
        self.receiving_since = None
        self.body.resume()

    def drop(self) -> None:
        self.parts.clear()
        if self.reservation is not None:
            self.reservation.release()
            self.reservation = None


class ParsedLinkHeads(dict[bytes, tuple[str, Mapping[bytes, bytes]]]):
    """Paths and headers by head as received; clients repeat the same few."""

    def __missing__(self, head: bytes) -> tuple[str, Mapping[bytes, bytes]]:
        path, _, lines = head.partition(b"\n")
        read = path.decode("latin-1"), joined_raw_fields(ParsedLines()[lines])
        if len(head) <= MAX_KNOWN_HEAD_BYTES:
            if len(self) >= MAX_KNOWN_HEADS:
                self.clear()
            self[head] = read
        return read
