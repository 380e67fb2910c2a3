"""The bytes of an answer's head."""

from collections.abc import Iterable
from email.utils import formatdate
from http import HTTPStatus

__all__ = ["CONTINUE", "date_line", "field_lines", "status_line"]

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}


def status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status


def field_lines(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header fields as they are sent, in the order and the case given."""
    return b"".join([b"%b: %b\r\n" % field for field in fields])


def date_line(now: float) -> bytes:
    """The Date header's line for `now`, in seconds since the epoch."""
    return b"Date: %b\r\n" % formatdate(now, usegmt=True).encode()
