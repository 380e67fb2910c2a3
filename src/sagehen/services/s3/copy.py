"""Copies objects, and ranges of objects to parts."""

from collections.abc import Callable, Mapping
from urllib.parse import unquote_plus

import msgspec

from sagehen.services.s3.acl import written_acl
from sagehen.services.s3.errors import invalid_argument, invalid_request, speaking_s3
from sagehen.services.s3.http.attributes import encryption_headers, read_attributes
from sagehen.services.s3.http.checksums import checksum_elements, read_algorithm
from sagehen.services.s3.http.conditions import (
    ConditionResult,
    judge,
    precondition_failed,
    read_write_condition,
)
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.http.xml import check_version, document, iso_time, text
from sagehen.services.s3.storage import Copy
from sagehen.services.s3.storage.records import Attributes, ObjectInfo
from sagehen.wire.http import Response

__all__ = ["check_source", "copy_object", "read_source"]

_LARGEST_SOURCE_BYTES = 5 * 2**30
_SOURCE = "x-amz-copy-source"
_WEBSITE = "x-amz-website-redirect-location"


def read_source(headers: Mapping[str, str]) -> tuple[str, str]:
    """Raises AwsError InvalidArgument unless the header is `bucket/key`."""
    value = headers[_SOURCE]
    path, has_version, version = value.partition("?versionId=")
    try:
        bucket, _, key = unquote_plus(path, errors="strict").removeprefix("/").partition("/")
    except UnicodeDecodeError:
        bucket, key = "", ""
    if not bucket or bucket.startswith("arn:"):
        raise invalid_argument(
            "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
            _SOURCE,
            value,
        )
    if not key:
        raise invalid_argument("Invalid copy source object key", _SOURCE, value)
    if has_version:
        check_version({"versionId": version}, key)
    return bucket, key


def check_source(exchange: S3Exchange, source: ObjectInfo) -> None:
    """Raises AwsError if a condition on the source fails."""
    now = exchange.call.clock.now()
    verdict, header = judge(exchange.headers, source, now, prefix=f"{_SOURCE}-")
    if verdict is not ConditionResult.GO_ON:
        raise precondition_failed(f"x-amz-copy-source-{header}")


async def copy_object(exchange: S3Exchange) -> Response:
    bucket, key = read_source(exchange.headers)
    requested = read_attributes(exchange.headers, await written_acl(exchange))
    copy = Copy(
        source_bucket=bucket,
        source_key=key,
        bucket=exchange.bucket,
        key=exchange.key,
        describe=_describer(exchange, requested),
        algorithm=read_algorithm(exchange.headers),
        condition=read_write_condition(exchange.headers),
    )

    def act() -> ObjectInfo:
        settings = exchange.store.bucket(exchange.bucket).settings
        if (bucket, key) == (exchange.bucket, exchange.key) and not settings.encryption_was_set:
            _check_changes_itself(exchange.headers)
        with speaking_s3(bucket, key):
            return exchange.store.copy(copy)

    info = await exchange.run(act)
    body = document(
        "CopyObjectResult",
        [
            text("LastModified", iso_time(info.modified_at)),
            text("ETag", f'"{info.etag}"'),
            checksum_elements(info.checksum),
        ],
    )
    headers = {"content-type": "application/xml", **encryption_headers(info.attributes)}
    return Response(200, headers, body)


def _describer(exchange: S3Exchange, requested: Attributes) -> Callable[[ObjectInfo], Attributes]:
    """The returned function raises AwsError for sources that cannot be copied."""
    headers = exchange.headers
    replace = _directive(headers, "x-amz-metadata-directive")
    replace_tags = _directive(headers, "x-amz-tagging-directive")

    def describe(source: ObjectInfo) -> Attributes:
        check_source(exchange, source)
        _check_size(source)
        tags = requested.tags if replace_tags else source.attributes.tags
        if replace:
            return msgspec.structs.replace(requested, tags=tags)
        attributes = source.attributes
        copied_headers = {
            name: value for name, value in attributes.headers.items() if not _is_never_copied(name)
        }
        new_headers = {
            name: value for name, value in requested.headers.items() if _is_never_copied(name)
        }
        return Attributes(
            headers={**copied_headers, **new_headers},
            metadata=attributes.metadata,
            tags=tags,
            storage_class=requested.storage_class,
            acl=requested.acl,
        )

    return describe


def _check_changes_itself(headers: Mapping[str, str]) -> None:
    changing = ("x-amz-storage-class", "x-amz-server-side-encryption", _WEBSITE)
    replaces = _directive(headers, "x-amz-metadata-directive")
    if not replaces and not any(name in headers for name in changing):
        raise invalid_request(
            "This copy request is illegal because it is trying to copy an object to itself without "
            "changing the object's metadata, storage class, website redirect location or "
            "encryption attributes."
        )


def _check_size(source: ObjectInfo) -> None:
    if source.size > _LARGEST_SOURCE_BYTES:
        raise invalid_request(
            "The specified copy source is larger than the maximum allowable size for a copy "
            f"source: {_LARGEST_SOURCE_BYTES}"
        )


def _is_never_copied(header: str) -> bool:
    """Encryption and redirects are never copied, only requested."""
    return header.startswith("x-amz-")


def _directive(headers: Mapping[str, str], name: str) -> bool:
    directive = headers.get(name, "COPY")
    if directive not in ("COPY", "REPLACE"):
        raise invalid_argument(f"Unknown {name.removeprefix('x-amz-')}.", name, directive)
    return directive == "REPLACE"
