"""Frames of AWS's event stream.

total length · headers' length · CRC of these two · headers · payload · CRC of all before

Numbers are 32-bit big-endian. A header is its name's length (8 bits), name, type (8 bits; 7 is
text), value's length (16 bits) and value.
"""

import json
from binascii import crc32
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct

__all__ = ["event", "exception", "frame"]

_TEXT = 7
_LENGTHS = Struct(">II")
_NUMBER = Struct(">I")
_OVERHEAD_BYTES = 16


def event(event_type: str, payload: bytes) -> bytes:
    return _framed(_event_headers(event_type), payload)


def exception(exception_type: str, members: Mapping[str, str]) -> bytes:
    """Returns a frame that makes clients raise; it must be the last."""
    headers = {
        ":exception-type": exception_type,
        ":content-type": "application/json",
        ":message-type": "exception",
    }
    return frame(headers, json.dumps(members).encode())


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Names may have up to 255 bytes, values up to 65535."""
    return _framed(_encoded(headers), payload)


def _framed(headers: bytes, payload: bytes) -> bytes:
    lengths = _LENGTHS.pack(_OVERHEAD_BYTES + len(headers) + len(payload), len(headers))
    prelude = lengths + _NUMBER.pack(crc32(lengths))
    # A running CRC, so that the payload is copied only once.
    crc = crc32(payload, crc32(headers, crc32(prelude)))
    return b"".join((prelude, headers, payload, _NUMBER.pack(crc)))


@lru_cache(maxsize=16)
def _event_headers(event_type: str) -> bytes:
    return _encoded(
        {
            ":event-type": event_type,
            ":content-type": "application/octet-stream",
            ":message-type": "event",
        }
    )


def _encoded(headers: Mapping[str, str]) -> bytes:
    return b"".join(_header(name.encode(), value.encode()) for name, value in headers.items())


def _header(name: bytes, value: bytes) -> bytes:
    return b"%c%b%c%b%b" % (len(name), name, _TEXT, len(value).to_bytes(2, "big"), value)
