"""The MD5s that SQS answers with; how attributes are put together for it: SQS's developer guide
(sqs-message-metadata, "Calculating the MD5 message digest for message attributes")."""

import hashlib
import struct
from collections.abc import Mapping

from sagehen.domain.notices import MessageAttribute

__all__ = ["md5_of_attributes", "md5_of_body"]

_STRING, _BINARY = b"\x01", b"\x02"


def md5_of_body(body: str) -> str:
    return _md5(body.encode())


def md5_of_attributes(attributes: Mapping[str, MessageAttribute]) -> str:
    """Of attributes by their names."""
    parts: list[bytes] = []
    for name, one in sorted(attributes.items()):
        value, kind = one.binary_value, _BINARY
        if value is None:
            value, kind = (one.string_value or "").encode(), _STRING
        parts += [_sized(name.encode()), _sized(one.data_type.encode()), kind, _sized(value)]
    return _md5(b"".join(parts))


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()
