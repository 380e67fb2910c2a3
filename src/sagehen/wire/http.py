"""Requests, responses, and decompression of bodies."""

import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from sagehen.wire.errors import AwsError

__all__ = ["Request", "Response", "decompressed"]


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request with its whole body; S3 streams its bodies and leaves `body` empty."""

    method: str
    raw_path: str
    """percent-encoded as sent, without the query"""
    raw_query: str
    """as sent, without the question mark"""
    headers: Mapping[str, str]
    """lower-case names; repeated headers joined by commas"""
    body: bytes = b""


@dataclass(slots=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""


_GZIP = 16 + zlib.MAX_WBITS


def decompressed(request: Request, largest_bytes: int) -> Request:
    """Decompresses the body, e.g. of boto3's PutMetricData from 10 KiB on.

    Check the signature first: it covers the compressed body. Raises AwsError for malformed bodies
    and those larger than `largest_bytes`.
    """
    coding = request.headers.get("content-encoding", "").strip().lower()
    if coding != "gzip":
        return request
    inflater = zlib.decompressobj(_GZIP)
    try:
        body = inflater.decompress(request.body, largest_bytes + 1)
    except zlib.error as error:
        raise _unreadable(str(error)) from None
    if len(body) > largest_bytes:
        raise AwsError(
            "RequestEntityTooLargeException",
            f"The request body is over {largest_bytes} bytes once decompressed.",
            413,
        )
    if not inflater.eof or inflater.unused_data:
        raise _unreadable("it is cut short or goes on behind its end")
    headers = {name: value for name, value in request.headers.items() if name != "content-encoding"}
    return replace(request, headers=headers, body=body)


def _unreadable(reason: str) -> AwsError:
    return AwsError(
        "SerializationException", f"The request body cannot be decompressed by gzip: {reason}.", 400
    )
