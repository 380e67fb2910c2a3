"""Converts between headers and object attributes."""

from collections.abc import Mapping
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.utils import formatdate
from urllib.parse import parse_qsl

from sagehen.services.s3.errors import invalid_argument, not_implemented
from sagehen.services.s3.http.checksums import checksum_headers
from sagehen.services.s3.storage.records import Attributes, ObjectInfo
from sagehen.services.s3.tags import TAG_CHARACTERS, check_tags
from sagehen.wire.errors import AwsError

__all__ = [
    "OF_THE_CONTENT",
    "encryption_headers",
    "object_headers",
    "read_attributes",
    "refuse_encryption",
    "refuse_unknown",
    "written_headers",
]

DEFAULT_CONTENT_TYPE = "binary/octet-stream"

_META = "x-amz-meta-"
_MOST_METADATA_BYTES = 2048
OF_THE_CONTENT = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
)
"""headers kept with an object, which a GET may override"""
_KEPT = (*OF_THE_CONTENT, "x-amz-website-redirect-location")
_ENCRYPTION = (
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-aws-kms-key-id",
    "x-amz-server-side-encryption-bucket-key-enabled",
)
_DEFAULT_ENCRYPTION = {_ENCRYPTION[0]: "AES256"}
_BY_KMS = ("aws:kms", "aws:kms:dsse")
_ENCRYPTIONS = ("AES256", *_BY_KMS)
_STORAGE_CLASSES = (
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
)
_ARCHIVES = ("GLACIER", "DEEP_ARCHIVE")
"""classes whose objects cannot be read until they are restored"""
_BYPASS = "x-amz-bypass-governance-retention"
_REFUSED = (
    "x-amz-server-side-encryption-customer-",
    "x-amz-copy-source-server-side-encryption-customer-",
    "x-amz-object-lock-",
    "x-amz-grant-",
    "x-amz-server-side-encryption-context",
    "x-amz-if-match-",
    "x-amz-mfa",
    "x-amz-write-offset-bytes",
)


def refuse_unknown(headers: Mapping[str, str]) -> None:
    """Raises AwsError for unsupported headers or values."""
    for name in headers:
        if name.startswith(_REFUSED):
            raise not_implemented(f"The header {name}")
    if _BYPASS in headers:
        raise AwsError(
            "InvalidArgument",
            f"{_BYPASS} is only applicable to Object Lock enabled buckets.",
            400,
            ArgumentName=_BYPASS,
        )
    if headers.get("x-amz-bucket-object-lock-enabled", "false").lower() == "true":
        raise not_implemented("Object lock")
    if headers.get("x-amz-bucket-namespace", "global") != "global":
        raise not_implemented("A bucket namespace other than global")


def read_attributes(headers: Mapping[str, str], acl: str = "private") -> Attributes:
    """Raises AwsError InvalidStorageClass, InvalidTag, MetadataTooLarge and others."""
    stored = {name: headers[name] for name in (*_KEPT, *_ENCRYPTION) if name in headers}
    if "aws-chunked" in stored.get("content-encoding", ""):
        # aws-chunked encodes the request's body, not the object.
        parts = [part.strip() for part in stored.pop("content-encoding").split(",")]
        if others := [part for part in parts if part not in ("", "aws-chunked")]:
            stored["content-encoding"] = ",".join(others)
    _check_encryption(stored)
    return Attributes(
        headers=stored,
        metadata=_read_metadata(headers),
        tags=_read_tags(headers.get("x-amz-tagging", "")),
        storage_class=_read_storage_class(headers),
        acl=acl,
    )


def refuse_encryption(headers: Mapping[str, str]) -> None:
    """Raises AwsError for encryption headers of requests that write no object."""
    for name in _ENCRYPTION:
        if name in headers:
            raise invalid_argument(
                f"{name} header is not supported for this operation.", name, headers[name]
            )


def object_headers(info: ObjectInfo) -> dict[str, str]:
    """Returns a read's headers except for length and checksum."""
    attributes = info.attributes
    headers = {
        "content-type": DEFAULT_CONTENT_TYPE,
        **_DEFAULT_ENCRYPTION,
        **attributes.headers,
        "accept-ranges": "bytes",
        "etag": f'"{info.etag}"',
        "last-modified": formatdate(info.modified_at, usegmt=True),
    }
    headers.update({_META + name: value for name, value in attributes.metadata.items()})
    if attributes.tags:
        headers["x-amz-tagging-count"] = str(len(attributes.tags))
    if attributes.storage_class != "STANDARD":
        headers["x-amz-storage-class"] = attributes.storage_class
    return headers


def written_headers(info: ObjectInfo) -> dict[str, str]:
    return {
        "etag": f'"{info.etag}"',
        **encryption_headers(info.attributes),
        **checksum_headers(info.checksum),
    }


def encryption_headers(attributes: Attributes) -> dict[str, str]:
    requested = {
        name: attributes.headers[name] for name in _ENCRYPTION if name in attributes.headers
    }
    return {**_DEFAULT_ENCRYPTION, **requested}


def _check_encryption(headers: Mapping[str, str]) -> None:
    algorithm = headers.get(_ENCRYPTION[0])
    if _ENCRYPTION[1] in headers and algorithm not in _BY_KMS:
        raise invalid_argument(
            "Server Side Encryption with AWS KMS managed key requires HTTP header "
            "x-amz-server-side-encryption : aws:kms",
            _ENCRYPTION[0],
            algorithm or "null",
        )
    if algorithm is not None and algorithm not in _ENCRYPTIONS:
        raise AwsError(
            "InvalidEncryptionAlgorithmError",
            "The encryption request that you specified is not valid. The valid value is AES256, "
            "aws:kms or aws:kms:dsse.",
            400,
        )


def _read_metadata(headers: Mapping[str, str]) -> dict[str, str]:
    metadata = {
        name.removeprefix(_META): _decoded(value)
        for name, value in headers.items()
        if name.startswith(_META)
    }
    size = sum(len(name) + len(value) for name, value in metadata.items())
    if size > _MOST_METADATA_BYTES:
        raise AwsError(
            "MetadataTooLarge",
            "Your metadata headers exceed the maximum allowed metadata size",
            400,
            Size=size,
            MaxSizeAllowed=_MOST_METADATA_BYTES,
        )
    return metadata


def _decoded(value: str) -> str:
    """Decodes RFC 2047's encoded words, unless the text would be none for a header."""
    if not value.startswith("=?"):
        return value
    try:
        text = str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError):
        return value
    return text if text.isascii() and text.isprintable() else value


def _read_tags(header: str) -> dict[str, str]:
    try:
        # Received headers have one character per byte.
        query = header.encode("latin-1").decode()
        pairs = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise _malformed_tags(header) from None
    if len(dict(pairs)) < len(pairs):
        raise _malformed_tags(header)
    if not all(TAG_CHARACTERS.fullmatch(text) for pair in pairs for text in pair):
        raise _malformed_tags(header)
    return check_tags(pairs)


def _malformed_tags(header: str) -> AwsError:
    return invalid_argument(
        "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters "
        "without tag name duplicates.",
        "x-amz-tagging",
        header,
    )


def _read_storage_class(headers: Mapping[str, str]) -> str:
    storage_class = headers.get("x-amz-storage-class", "STANDARD")
    if storage_class in _ARCHIVES:
        raise not_implemented(
            f"The storage class {storage_class}, whose objects need RestoreObject to be read,"
        )
    if storage_class not in _STORAGE_CLASSES:
        raise AwsError(
            "InvalidStorageClass",
            "The storage class you specified is not valid",
            400,
            StorageClassRequested=storage_class,
        )
    return storage_class
