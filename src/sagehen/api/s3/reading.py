"""GetObject and HeadObject: the same answer, with the bytes or without."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from sagehen.api.s3.attributes import OF_THE_CONTENT, object_headers, refuse_encryption
from sagehen.api.s3.body import SMALL_BYTES
from sagehen.api.s3.checksums import checksum_headers
from sagehen.api.s3.conditions import Verdict, judge, precondition_failed, read_range
from sagehen.api.s3.exchange import Exchange
from sagehen.api.s3.faults import invalid_argument
from sagehen.domain.objects import Blob, ObjectInfo
from sagehen.objects import OpenObject
from sagehen.wire.faults import AwsError
from sagehen.wire.http import Response

__all__ = ["get_object", "head_object"]

Span = tuple[int, int]
"""First byte and number of bytes."""


async def head_object(exchange: Exchange) -> Response:
    refuse_encryption(exchange.headers)

    def look() -> Response:
        if "partNumber" not in exchange.query:
            info = exchange.store.head(exchange.bucket, exchange.key)
            return _answer(exchange, info, ())[0]
        with exchange.store.open(exchange.bucket, exchange.key) as found:
            return _answer(exchange, found.info, found.parts)[0]

    return await exchange.run(look)


async def get_object(exchange: Exchange) -> Response:
    refuse_encryption(exchange.headers)

    def begin() -> Response:
        found = exchange.store.open(exchange.bucket, exchange.key)
        try:
            response, (start, length) = _answer(exchange, found.info, found.parts)
            if length > SMALL_BYTES:
                response.body = _send(found, start, length)
                return response
            response.body = b"".join(found.chunks(start, length))
        except BaseException:
            found.close()
            raise
        found.close()
        return response

    return await exchange.run(begin)


async def _send(found: OpenObject, start: int, length: int) -> AsyncIterator[bytes]:
    """The bytes, each piece read while the one before it is sent."""
    chunks = found.chunks(start, length)
    reading = asyncio.create_task(asyncio.to_thread(next, chunks, b""))
    try:
        while chunk := await reading:
            reading = asyncio.create_task(asyncio.to_thread(next, chunks, b""))
            yield chunk
    finally:
        # The thread must be done with the files before they are closed.
        await asyncio.wait([reading])
        found.close()


def _answer(exchange: Exchange, info: ObjectInfo, parts: Sequence[Blob]) -> tuple[Response, Span]:
    """The answer without its bytes, and which those are."""
    verdict, header = judge(exchange.headers, info)
    if verdict is Verdict.FAILED:
        raise precondition_failed(header)
    headers = object_headers(info)
    if verdict is Verdict.NOT_MODIFIED:
        kept = ("etag", "last-modified", "cache-control", "expires")
        return Response(304, {name: headers[name] for name in kept if name in headers}), (0, 0)
    _override(exchange, headers)
    span = read_range(exchange.headers.get("range"), info.size)
    if "partNumber" in exchange.query:
        span = _part_span(exchange, info, parts)
        if parts and "-" in info.etag:
            headers["x-amz-mp-parts-count"] = str(len(parts))
    if span is None:
        # A checksum of the whole would fail a client that checks only what it got.
        if exchange.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
            headers.update(checksum_headers(info.checksum))
        headers["content-length"] = str(info.size)
        return Response(200, headers), (0, info.size)
    start, length = span
    headers["content-length"] = str(length)
    headers["content-range"] = f"bytes {start}-{start + length - 1}/{info.size}"
    return Response(206, headers), span


def _override(exchange: Exchange, headers: dict[str, str]) -> None:
    for name in OF_THE_CONTENT:
        value = exchange.query.get(f"response-{name}")
        if value is not None:
            if not value.isprintable() or not value.isascii():
                raise invalid_argument("Invalid header value.", f"response-{name}", value)
            headers[name] = value


def _part_span(exchange: Exchange, info: ObjectInfo, parts: Sequence[Blob]) -> Span | None:
    if "range" in exchange.headers:
        raise AwsError(
            "InvalidRequest", "Cannot specify both Range header and partNumber query parameter", 400
        )
    given = exchange.query["partNumber"]
    sizes = [part.size for part in parts] or [info.size]
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 6 else 0
    if not 0 < number <= len(sizes):
        raise AwsError(
            "InvalidPartNumber",
            "The requested partnumber is not satisfiable",
            416,
            PartNumberRequested=given,
            ActualPartCount=len(sizes),
        )
    size = sizes[number - 1]
    return (sum(sizes[: number - 1]), size) if size else None
