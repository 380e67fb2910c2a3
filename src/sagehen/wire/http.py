"""A request and a response, as the protocols see them.

A request whose body came compressed, as boto3 sends PutMetricData's from 10 KiB on.
"""

import zlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace

from sagehen.wire.errors import AwsError

__all__ = ["Request", "Response", "decompressed"]


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. The body is whole here; S3 hands streams beside it, with `body` empty."""

    method: str
    raw_path: str
    """As sent: percent-encoded, without the query."""
    raw_query: str
    """As sent, without the question mark."""
    headers: Mapping[str, str]
    """Names in lower case; repeated headers joined by commas."""
    body: bytes = b""


@dataclass(slots=True)
class Response:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | AsyncIterator[bytes] = b""


_GZIP = 16 + zlib.MAX_WBITS


def decompressed(request: Request, largest_bytes: int) -> Request:
    """The same request with its body as it was before it was compressed.

    Its signature is made over the compressed body: check it first.

    Raises:
        AwsError: the body is not what its header says, or becomes larger than `largest_bytes`.
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


def _unreadable(why: str) -> AwsError:
    return AwsError(
        "SerializationException", f"The request body cannot be decompressed by gzip: {why}.", 400
    )
