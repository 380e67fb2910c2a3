"""A request whose body came compressed, as boto3 sends PutMetricData's from 10 KiB on."""

import zlib
from dataclasses import replace

from sagehen.wire.faults import AwsError
from sagehen.wire.http import Request

__all__ = ["decompressed"]

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
