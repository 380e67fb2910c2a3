"""Header fields and the first lines of heads, as bytes and as a mapping."""

from collections.abc import Callable, Iterable, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Generic, TypeVar

__all__ = [
    "STATUS_LINES",
    "HeaderNameCache",
    "Headers",
    "ParsedLines",
    "date_line",
    "field_lines",
    "joined_fields",
    "joined_raw_fields",
]

Headers = list[tuple[bytes, bytes]]
"""Fields as received: order and case kept, repeated ones apart."""

Value = TypeVar("Value")

MAX_CACHED_NAMES = 1024
MAX_CACHED_NAME_BYTES = 128
"""bytes; clients may send names as long as a whole head"""


class HeaderNameCache(dict[bytes, Value], Generic[Value]):
    """A cache of values computed from a header name as sent."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[bytes], Value]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, name: bytes) -> Value:
        if len(self) >= MAX_CACHED_NAMES:
            self.clear()
        value = self._compute(name)
        if len(name) <= MAX_CACHED_NAME_BYTES:
            self[name] = value
        return value


_lower_names = HeaderNameCache(lambda name: name.decode("latin-1").lower())


def joined_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[str, str]:
    """Returns lower-case names; values of repeated fields are joined by commas."""
    headers = {_lower_names[name]: value.decode("latin-1") for name, value in fields}
    if len(headers) != len(fields):
        headers.clear()
        for raw_name, raw_value in fields:
            name, value = _lower_names[raw_name], raw_value.decode("latin-1")
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def joined_raw_fields(fields: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Returns the same as `joined_fields`, as bytes."""
    headers = {name.lower(): value for name, value in fields}
    if len(headers) != len(fields):
        headers.clear()
        for raw_name, value in fields:
            name = raw_name.lower()
            headers[name] = headers[name] + b"," + value if name in headers else value
    return headers


def field_lines(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in fields])


MAX_CACHED_LINES = 1024
MAX_CACHED_LINES_BYTES = 1024
"""of one entry"""


class ParsedLines(dict[bytes, Headers]):
    """The fields of header lines, cached as received; the lists are shared, so never written to."""

    def __missing__(self, lines: bytes) -> Headers:
        fields = []
        for line in lines.split(b"\r\n"):
            if line:
                name, _, value = line.partition(b":")
                fields.append((name, value.strip()))
        if len(lines) <= MAX_CACHED_LINES_BYTES:
            if len(self) >= MAX_CACHED_LINES:
                self.clear()
            self[lines] = fields
        return fields


class _StatusLines(dict[int, bytes]):
    def __missing__(self, status: int) -> bytes:
        return b"HTTP/1.1 %d Status\r\n" % status


STATUS_LINES = _StatusLines(
    {
        status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
        for status in HTTPStatus
    }
)


def date_line(now: float) -> bytes:
    """`now`: seconds since the epoch."""
    return b"Date: %b\r\n" % formatdate(now, usegmt=True).encode()
