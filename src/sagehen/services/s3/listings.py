"""The three ways to list a bucket's objects."""

import base64
import binascii
from collections.abc import Callable
from urllib.parse import quote

from sagehen.services.s3.acl import owner_element
from sagehen.services.s3.errors import invalid_argument
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.http.xml import NULL_VERSION, document, element, iso_time, text
from sagehen.services.s3.storage.records import Listing, ListingQuery, ObjectInfo
from sagehen.wire.http import Response

__all__ = [
    "MOST_NAMES",
    "Encode",
    "list_object_versions",
    "list_objects",
    "list_objects_v2",
    "name_encoder",
    "read_int",
    "read_limit",
]

MOST_NAMES = 1000
_MOST_DIGITS = 10
_MOST_INT = 2**31 - 1

Encode = Callable[[str], str]


async def list_objects(exchange: S3Exchange) -> Response:
    query = exchange.query
    marker = query.get("marker", "")
    page = await _page(exchange, marker)
    encode = name_encoder(exchange)
    owner = owner_element(exchange.call.settings.account_id)
    # Without a delimiter, clients continue from the last key.
    next_marker = page.truncated and bool(query.get("delimiter"))
    inner = [
        *_query_elements(exchange, encode),
        text("Marker", encode(marker)),
        text("NextMarker", encode(page.last)) if next_marker else "",
        *(_contents(info, encode, owner) for info in page.objects),
        *_truncation(page, encode),
    ]
    return _answer("ListBucketResult", inner)


async def list_objects_v2(exchange: S3Exchange) -> Response:
    query = exchange.query
    token = query.get("continuation-token")
    start_after = query.get("start-after", "")
    page = await _page(exchange, start_after if token is None else _read_token(token))
    encode = name_encoder(exchange)
    wants_owner = query.get("fetch-owner", "").lower() == "true"
    owner = owner_element(exchange.call.settings.account_id) if wants_owner else ""
    inner = [
        *_query_elements(exchange, encode),
        text("KeyCount", len(page.objects) + len(page.common_prefixes)),
        text("StartAfter", encode(start_after)) if start_after and token is None else "",
        text("ContinuationToken", token) if token is not None else "",
        text("NextContinuationToken", _write_token(page.last)) if page.truncated else "",
        *(_contents(info, encode, owner) for info in page.objects),
        *_truncation(page, encode),
    ]
    return _answer("ListBucketResult", inner)


async def list_object_versions(exchange: S3Exchange) -> Response:
    marker = exchange.query.get("key-marker", "")
    page = await _page(exchange, marker)
    encode = name_encoder(exchange)
    owner = owner_element(exchange.call.settings.account_id)
    version = text("VersionId", NULL_VERSION) + text("IsLatest", "true")
    inner = [
        *_query_elements(exchange, encode),
        text("KeyMarker", encode(marker)),
        text("NextKeyMarker", encode(page.last)) if page.truncated else "",
        text("NextVersionIdMarker", NULL_VERSION) if page.truncated else "",
        *(_contents(info, encode, version + owner, "Version") for info in page.objects),
        *_truncation(page, encode),
    ]
    return _answer("ListVersionsResult", inner)


def name_encoder(exchange: S3Exchange) -> Encode:
    """Raises AwsError."""
    encoding = exchange.query.get("encoding-type")
    if encoding is None:
        return str
    if encoding != "url":
        raise invalid_argument(
            "Invalid Encoding Method specified in Request", "encoding-type", encoding
        )
    return quote


def read_limit(exchange: S3Exchange, name: str) -> int:
    """Returns at most 1000. Raises AwsError."""
    value = exchange.query.get(name)
    return min(read_int(name, value), MOST_NAMES) if value is not None else MOST_NAMES


def read_int(name: str, value: str) -> int:
    """Parses a number of at most 31 bits. Raises AwsError InvalidArgument."""
    digits = value.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
    number = int(value) if is_number else _MOST_INT + 1
    if not -_MOST_INT <= number <= _MOST_INT:
        raise invalid_argument(
            f"Provided {name} not an integer or within integer range", name, value
        )
    if number < 0:
        shown_name = "maxKeys" if name == "max-keys" else name
        raise invalid_argument(
            f"Argument {shown_name} must be an integer between 0 and {_MOST_INT}", name, value
        )
    return number


async def _page(exchange: S3Exchange, after: str) -> Listing:
    query = ListingQuery(
        prefix=exchange.query.get("prefix", ""),
        delimiter=exchange.query.get("delimiter", ""),
        after=after,
        limit=read_limit(exchange, "max-keys"),
    )
    return await exchange.run(lambda: exchange.store.list_page(exchange.bucket, query))


def _query_elements(exchange: S3Exchange, encode: Encode) -> list[str]:
    query = exchange.query
    delimiter = query.get("delimiter", "")
    return [
        text("Name", exchange.bucket),
        text("Prefix", encode(query.get("prefix", ""))),
        text("Delimiter", encode(delimiter)) if delimiter else "",
        text("MaxKeys", read_limit(exchange, "max-keys")),
        text("EncodingType", "url") if "encoding-type" in query else "",
    ]


def _truncation(page: Listing, encode: Encode) -> list[str]:
    prefixes = [element("CommonPrefixes", text("Prefix", encode(p))) for p in page.common_prefixes]
    return [*prefixes, text("IsTruncated", "true" if page.truncated else "false")]


def _contents(info: ObjectInfo, encode: Encode, more: str, name: str = "Contents") -> str:
    checksum = info.checksum
    kind = ""
    if checksum is not None:
        kind = text("ChecksumAlgorithm", checksum.algorithm.upper())
        kind += text("ChecksumType", checksum.kind.value)
    return element(
        name,
        text("Key", encode(info.key)),
        text("LastModified", iso_time(info.modified_at)),
        text("ETag", f'"{info.etag}"'),
        kind,
        text("Size", info.size),
        text("StorageClass", info.attributes.storage_class),
        more,
    )


def _answer(name: str, inner: list[str]) -> Response:
    return Response(200, {"content-type": "application/xml"}, document(name, inner))


def _write_token(last: str) -> str:
    return base64.urlsafe_b64encode(last.encode()).decode()


def _read_token(token: str) -> str:
    try:
        if last := base64.b64decode(token, altchars=b"-_", validate=True).decode():
            return last
    except (binascii.Error, ValueError):
        pass
    raise invalid_argument(
        "The continuation token provided is incorrect", "continuation-token", token
    )
