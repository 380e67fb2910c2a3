"""Bucket settings that are kept and described, but do not change how objects are stored.

Other settings, such as versioning or KMS encryption, are refused by name.
"""

from collections.abc import Mapping
from xml.etree.ElementTree import Element

import msgspec

from sagehen.services.s3.acl import acl_with_ownership
from sagehen.services.s3.errors import invalid_argument, malformed_xml, not_implemented
from sagehen.services.s3.http.body import read_document
from sagehen.services.s3.http.exchange import Operation, S3Exchange
from sagehen.services.s3.http.xml import child_text, children, document, element, parse, text
from sagehen.services.s3.storage.records import BucketSettings, Ownership, PublicAccessBlock
from sagehen.services.s3.tags import read_tag_sets, tag_elements
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Response

__all__ = ["OPERATIONS", "read_ownership"]

_SWITCHES = (
    ("BlockPublicAcls", "block_public_acls"),
    ("IgnorePublicAcls", "ignore_public_acls"),
    ("BlockPublicPolicy", "block_public_policy"),
    ("RestrictPublicBuckets", "restrict_public_buckets"),
)


async def get_encryption(exchange: S3Exchange) -> Response:
    settings = await _settings(exchange)
    blocked = [text("EncryptionType", name) for name in settings.blocked_encryptions]
    rule = element(
        "Rule",
        element("ApplyServerSideEncryptionByDefault", text("SSEAlgorithm", "AES256")),
        text("BucketKeyEnabled", _word(settings.bucket_key)),
        element("BlockedEncryptionTypes", *blocked) if blocked else "",
    )
    return _answer("ServerSideEncryptionConfiguration", rule)


async def put_encryption(exchange: S3Exchange) -> Response:
    root = parse(await read_document(exchange), "ServerSideEncryptionConfiguration")
    rule = _only(root, "Rule")
    default = _only(rule, "ApplyServerSideEncryptionByDefault")
    algorithm = child_text(default, "SSEAlgorithm")
    if algorithm in ("aws:kms", "aws:kms:dsse"):
        raise not_implemented(f"PutBucketEncryption with the SSEAlgorithm {algorithm}")
    if algorithm != "AES256":
        raise malformed_xml()
    if (key := child_text(default, "KMSMasterKeyID")) is not None:
        raise invalid_argument(
            "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or "
            "aws:kms:dsse",
            "ApplyServerSideEncryptionByDefault",
            key,
        )
    bucket_key = _switch(rule, "BucketKeyEnabled")
    blocked = tuple(
        kind.text or ""
        for types in children(rule, "BlockedEncryptionTypes")
        for kind in children(types, "EncryptionType")
    )
    if not {*blocked} <= {"NONE", "SSE-C"}:
        raise malformed_xml()
    await _change(
        exchange, bucket_key=bucket_key, blocked_encryptions=blocked, encryption_was_set=True
    )
    return Response(200)


async def delete_encryption(exchange: S3Exchange) -> Response:
    """Resets the bucket key; AES256 encryption always stays."""
    await _change(exchange, bucket_key=False, blocked_encryptions=(), encryption_was_set=False)
    return Response(204)


async def get_public_access_block(exchange: S3Exchange) -> Response:
    block = (await _settings(exchange)).public_access_block
    if block is None:
        raise AwsError(
            "NoSuchPublicAccessBlockConfiguration",
            "The public access block configuration was not found",
            404,
            BucketName=exchange.bucket,
        )
    inner = [text(name, _word(getattr(block, field))) for name, field in _SWITCHES]
    return _answer("PublicAccessBlockConfiguration", *inner)


async def put_public_access_block(exchange: S3Exchange) -> Response:
    root = parse(await read_document(exchange), "PublicAccessBlockConfiguration")
    block = PublicAccessBlock(**{field: _switch(root, name) for name, field in _SWITCHES})
    await _change(exchange, public_access_block=block)
    return Response(200)


async def delete_public_access_block(exchange: S3Exchange) -> Response:
    await _change(exchange, public_access_block=None)
    return Response(204)


async def get_ownership_controls(exchange: S3Exchange) -> Response:
    ownership = (await _settings(exchange)).ownership
    if ownership is None:
        raise AwsError(
            "OwnershipControlsNotFoundError",
            "The bucket ownership controls were not found",
            404,
            BucketName=exchange.bucket,
        )
    return _answer("OwnershipControls", element("Rule", text("ObjectOwnership", ownership.value)))


async def put_ownership_controls(exchange: S3Exchange) -> Response:
    root = parse(await read_document(exchange), "OwnershipControls")
    value = child_text(_only(root, "Rule"), "ObjectOwnership")
    if value not in list(Ownership):
        raise malformed_xml()
    ownership = Ownership(value)

    def change(settings: BucketSettings) -> BucketSettings:
        if ownership is Ownership.ENFORCED and settings.acl != "private":
            raise acl_with_ownership()
        return msgspec.structs.replace(settings, ownership=ownership)

    await exchange.run(lambda: exchange.store.change_bucket(exchange.bucket, change))
    return Response(200)


async def delete_ownership_controls(exchange: S3Exchange) -> Response:
    await _change(exchange, ownership=None)
    return Response(204)


def read_ownership(headers: Mapping[str, str]) -> Ownership | None:
    """Raises AwsError InvalidArgument."""
    value = headers.get("x-amz-object-ownership")
    if value is None:
        return None
    if value not in list(Ownership):
        raise invalid_argument(
            f"Invalid x-amz-object-ownership header: {value}", "x-amz-object-ownership", value
        )
    return Ownership(value)


async def get_tagging(exchange: S3Exchange) -> Response:
    tags = (await _settings(exchange)).tags
    if not tags:
        raise AwsError("NoSuchTagSet", "The TagSet does not exist", 404, BucketName=exchange.bucket)
    return _answer("Tagging", tag_elements(tags))


async def put_tagging(exchange: S3Exchange) -> Response:
    root = parse(await read_document(exchange), "Tagging")
    await _change(exchange, tags=read_tag_sets(root, "bucket"))
    return Response(204)


async def delete_tagging(exchange: S3Exchange) -> Response:
    await _change(exchange, tags={})
    return Response(204)


async def get_versioning(exchange: S3Exchange) -> Response:
    """Returns an empty document unless suspended; versioning cannot be switched on."""
    suspended = (await _settings(exchange)).versioning_suspended
    return _answer("VersioningConfiguration", text("Status", "Suspended") if suspended else "")


async def put_versioning(exchange: S3Exchange) -> Response:
    root = parse(await read_document(exchange), "VersioningConfiguration")
    if child_text(root, "MfaDelete") == "Enabled":
        raise not_implemented("PutBucketVersioning with MFADelete")
    status = child_text(root, "Status")
    if status is None:
        raise AwsError(
            "IllegalVersioningConfigurationException",
            "The Versioning element must be specified",
            400,
        )
    if status == "Enabled":
        raise not_implemented("PutBucketVersioning with Status Enabled")
    if status != "Suspended":
        raise malformed_xml()
    await _change(exchange, versioning_suspended=True)
    return Response(200)


OPERATIONS: Mapping[str, Operation] = {
    "DeleteBucketEncryption": delete_encryption,
    "DeleteBucketOwnershipControls": delete_ownership_controls,
    "DeleteBucketTagging": delete_tagging,
    "DeletePublicAccessBlock": delete_public_access_block,
    "GetBucketEncryption": get_encryption,
    "GetBucketOwnershipControls": get_ownership_controls,
    "GetBucketTagging": get_tagging,
    "GetBucketVersioning": get_versioning,
    "GetPublicAccessBlock": get_public_access_block,
    "PutBucketEncryption": put_encryption,
    "PutBucketOwnershipControls": put_ownership_controls,
    "PutBucketTagging": put_tagging,
    "PutBucketVersioning": put_versioning,
    "PutPublicAccessBlock": put_public_access_block,
}


async def _settings(exchange: S3Exchange) -> BucketSettings:
    bucket = await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
    return bucket.settings


async def _change(exchange: S3Exchange, **changes: object) -> None:
    def change(settings: BucketSettings) -> BucketSettings:
        return msgspec.structs.replace(settings, **changes)

    await exchange.run(lambda: exchange.store.change_bucket(exchange.bucket, change))


def _answer(name: str, *inner: str) -> Response:
    return Response(200, {"content-type": "application/xml"}, document(name, inner))


def _only(parent: Element, name: str) -> Element:
    elements = children(parent, name)
    if len(elements) != 1:
        raise malformed_xml()
    return elements[0]


def _switch(parent: Element, name: str) -> bool:
    value = (child_text(parent, name) or "false").strip().lower()
    if value not in ("true", "false"):
        raise malformed_xml()
    return value == "true"


def _word(value: bool) -> str:
    return "true" if value else "false"
