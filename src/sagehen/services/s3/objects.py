"""Operations on objects: put, get, head, delete and GetObjectAttributes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from email.utils import formatdate

import msgspec

from sagehen.services.s3.acl import written_acl
from sagehen.services.s3.errors import (
    invalid_argument,
    invalid_request,
    malformed_xml,
    not_implemented,
)
from sagehen.services.s3.http.attributes import (
    OF_THE_CONTENT,
    object_headers,
    read_attributes,
    refuse_encryption,
    written_headers,
)
from sagehen.services.s3.http.body import SMALL_BYTES, plan_body, read_document, take
from sagehen.services.s3.http.checksums import checksum_headers, element_name
from sagehen.services.s3.http.conditions import (
    ConditionResult,
    judge,
    precondition_failed,
    read_range,
    read_write_condition,
)
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.http.xml import (
    NULL_VERSION,
    child_text,
    children,
    document,
    element,
    parse,
    text,
)
from sagehen.services.s3.listings import MOST_NAMES, read_int
from sagehen.services.s3.storage import OpenObject
from sagehen.services.s3.storage.records import Blob, Checksum, ChecksumKind, ObjectInfo
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Response

__all__ = [
    "delete_object",
    "delete_objects",
    "get_object",
    "get_object_attributes",
    "head_object",
    "put_object",
]

_MOST_KEYS_TO_DELETE = 1000


async def put_object(exchange: S3Exchange) -> Response:
    attributes = read_attributes(exchange.headers, await written_acl(exchange))
    condition = read_write_condition(exchange.headers)
    plan = plan_body(exchange)
    if plan.size > SMALL_BYTES:
        # Fail before the body is received, if possible.
        await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
    info = await take(
        exchange,
        plan,
        lambda draft: exchange.store.put(
            exchange.bucket, exchange.key, draft, attributes, condition
        ),
    )
    return Response(200, written_headers(info))


async def delete_object(exchange: S3Exchange) -> Response:
    condition = read_write_condition(exchange.headers, deletes=True)
    await exchange.run(lambda: exchange.store.delete(exchange.bucket, [exchange.key], condition))
    return Response(204)


def _no_such_version(key: str, version: str) -> str:
    return element(
        "Error",
        text("Key", key),
        text("VersionId", version),
        text("Code", "NoSuchVersion"),
        text("Message", "The specified version does not exist."),
    )


async def delete_objects(exchange: S3Exchange) -> Response:
    root = parse(await read_document(exchange), "Delete")
    named = children(root, "Object")
    if not 0 < len(named) <= _MOST_KEYS_TO_DELETE:
        raise malformed_xml()
    keys, refused = [], []
    for item in named:
        key = child_text(item, "Key")
        if not key:
            raise malformed_xml()
        for condition in ("ETag", "LastModifiedTime", "Size"):
            if children(item, condition):
                raise not_implemented(f"{condition} in DeleteObjects")
        version = child_text(item, "VersionId")
        if version in (None, "", NULL_VERSION):
            keys.append(key)
        else:
            refused.append(_no_such_version(key, version))
    await exchange.run(lambda: exchange.store.delete(exchange.bucket, keys))
    deleted = [element("Deleted", text("Key", key)) for key in keys]
    if (child_text(root, "Quiet") or "").strip().lower() == "true":
        deleted = []
    body = document("DeleteResult", [*deleted, *refused])
    return Response(200, {"content-type": "application/xml"}, body)


Span = tuple[int, int]
"""first byte and length"""


async def head_object(exchange: S3Exchange) -> Response:
    refuse_encryption(exchange.headers)

    def look() -> Response:
        if "partNumber" not in exchange.query:
            info = exchange.store.head(exchange.bucket, exchange.key)
            return _answer(exchange, info, ())[0]
        with exchange.store.open(exchange.bucket, exchange.key) as stored:
            return _answer(exchange, stored.info, stored.parts)[0]

    return await exchange.run(look)


async def get_object(exchange: S3Exchange) -> Response:
    refuse_encryption(exchange.headers)

    def begin() -> Response:
        stored = exchange.store.open(exchange.bucket, exchange.key)
        try:
            response, (start, length) = _answer(exchange, stored.info, stored.parts)
            if length > SMALL_BYTES:
                response.body = _send(stored, start, length)
                return response
            response.body = b"".join(stored.chunks(start, length))
        except BaseException:
            stored.close()
            raise
        stored.close()
        return response

    return await exchange.run(begin)


async def _send(stored: OpenObject, start: int, length: int) -> AsyncIterator[bytes]:
    """Reads each chunk while the previous one is sent."""
    chunks = stored.chunks(start, length)
    reading = asyncio.create_task(asyncio.to_thread(next, chunks, b""))
    try:
        while chunk := await reading:
            reading = asyncio.create_task(asyncio.to_thread(next, chunks, b""))
            yield chunk
    finally:
        # The thread must finish before the files close.
        await asyncio.wait([reading])
        stored.close()


def _answer(exchange: S3Exchange, info: ObjectInfo, parts: Sequence[Blob]) -> tuple[Response, Span]:
    verdict, header = judge(exchange.headers, info, exchange.call.clock.now())
    if verdict is ConditionResult.FAILED:
        raise precondition_failed(header)
    headers = object_headers(info)
    if verdict is ConditionResult.NOT_MODIFIED:
        names = ("etag", "last-modified", "cache-control", "expires")
        return Response(304, {name: headers[name] for name in names if name in headers}), (0, 0)
    _override(exchange, headers)
    span = read_range(exchange.headers.get("range"), info.size)
    if "partNumber" in exchange.query:
        span = _part_span(exchange, info, parts)
        if parts and "-" in info.etag:
            headers["x-amz-mp-parts-count"] = str(len(parts))
    if exchange.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED":
        headers.update(checksum_headers(_checksum_of(exchange, info, parts, span)))
    if span is None:
        headers["content-length"] = str(info.size)
        return Response(200, headers), (0, info.size)
    start, length = span
    headers["content-length"] = str(length)
    headers["content-range"] = f"bytes {start}-{start + length - 1}/{info.size}"
    return Response(206, headers), span


def _checksum_of(
    exchange: S3Exchange, info: ObjectInfo, parts: Sequence[Blob], span: Span | None
) -> Checksum | None:
    """Returns the checksum of the bytes to send: a range has none, nor has a part of several unless
    the object's checksum is of its parts."""
    checksum = info.checksum
    if checksum is None or "partNumber" not in exchange.query:
        return checksum if span is None else None
    if checksum.kind is ChecksumKind.COMPOSITE and parts:
        value = parts[int(exchange.query["partNumber"]) - 1].checksum
        return msgspec.structs.replace(checksum, value=value) if value else None
    return checksum if span in (None, (0, info.size)) else None


def _override(exchange: S3Exchange, headers: dict[str, str]) -> None:
    for name in OF_THE_CONTENT:
        value = exchange.query.get(f"response-{name}")
        if value is not None:
            if not value.isprintable() or not value.isascii():
                raise invalid_argument("Invalid header value.", f"response-{name}", value)
            headers[name] = value


def _part_span(exchange: S3Exchange, info: ObjectInfo, parts: Sequence[Blob]) -> Span | None:
    if "range" in exchange.headers:
        raise AwsError(
            "InvalidRequest", "Cannot specify both Range header and partNumber query parameter", 400
        )
    value = exchange.query["partNumber"]
    # A copy may consist of its source's parts, but is not in parts.
    sizes = [part.size for part in parts if "-" in info.etag] or [info.size]
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 6 else 0
    if not 0 < number <= len(sizes):
        raise AwsError(
            "InvalidPartNumber",
            "The requested partnumber is not satisfiable",
            416,
            PartNumberRequested=value,
            ActualPartCount=len(sizes),
        )
    size = sizes[number - 1]
    return (sum(sizes[: number - 1]), size) if size else None


_HEADER = "x-amz-object-attributes"
_KNOWN = ("ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize")


async def get_object_attributes(exchange: S3Exchange) -> Response:
    refuse_encryption(exchange.headers)
    requested = _read_attribute_names(exchange)
    limit = min(_number(exchange, "x-amz-max-parts", MOST_NAMES), MOST_NAMES)
    marker = _number(exchange, "x-amz-part-number-marker", 0)

    def read() -> tuple[ObjectInfo, Sequence[Blob]]:
        if "ObjectParts" not in requested:
            return exchange.store.head(exchange.bucket, exchange.key), ()
        with exchange.store.open(exchange.bucket, exchange.key) as stored:
            return stored.info, stored.parts

    info, parts = await exchange.run(read)
    came_in_parts = bool(parts) and "-" in info.etag
    elements = {
        "ETag": text("ETag", info.etag),
        "Checksum": _checksum(info.checksum) if info.checksum else "",
        "ObjectParts": _parts(parts, info.checksum, marker, limit) if came_in_parts else "",
        "StorageClass": text("StorageClass", info.attributes.storage_class),
        "ObjectSize": text("ObjectSize", info.size),
    }
    body = document(
        "GetObjectAttributesResponse", [elements[name] for name in _KNOWN if name in requested]
    )
    modified = formatdate(info.modified_at, usegmt=True)
    return Response(200, {"content-type": "application/xml", "last-modified": modified}, body)


def _read_attribute_names(exchange: S3Exchange) -> set[str]:
    header = exchange.headers.get(_HEADER, "")
    names = {name.strip() for name in header.split(",") if name.strip()}
    if not names:
        raise invalid_request(
            f"The {_HEADER} header specifying the attributes to be retrieved is either missing or "
            "empty"
        )
    if not names <= {*_KNOWN}:
        raise invalid_argument("Invalid attribute name specified.", _HEADER, header)
    return names


def _number(exchange: S3Exchange, name: str, otherwise: int) -> int:
    value = exchange.headers.get(name)
    return otherwise if value is None else read_int(name, value)


def _checksum(checksum: Checksum) -> str:
    # The value of a composite checksum ends in the number of parts.
    value = text(element_name(checksum.algorithm), checksum.value.partition("-")[0])
    return element("Checksum", value, text("ChecksumType", checksum.kind.value))


def _parts(parts: Sequence[Blob], checksum: Checksum | None, marker: int, limit: int) -> str:
    """Describes parts only where the object's checksum is of theirs, as S3 does."""
    count = text("PartsCount", len(parts))
    if checksum is None or checksum.kind is not ChecksumKind.COMPOSITE:
        return element("ObjectParts", count)
    behind = [part for part in parts if part.number > marker]
    page = behind[:limit]
    return element(
        "ObjectParts",
        count,
        text("PartNumberMarker", marker),
        text("NextPartNumberMarker", page[-1].number if page else 0),
        text("MaxParts", limit),
        text("IsTruncated", "true" if len(behind) > len(page) else "false"),
        *(_part(part, checksum.algorithm) for part in page),
    )


def _part(part: Blob, algorithm: str) -> str:
    return element(
        "Part",
        text("PartNumber", part.number),
        text("Size", part.size),
        text(element_name(algorithm), part.checksum or ""),
    )
