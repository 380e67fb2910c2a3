"""The operations on buckets."""

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from sagehen.services.s3.acl import new_bucket_acl, owner_element
from sagehen.services.s3.bucket_settings import read_ownership
from sagehen.services.s3.errors import not_implemented
from sagehen.services.s3.http.body import read_document
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.http.xml import (
    child_text,
    children,
    document,
    element,
    iso_time,
    parse,
    text,
)
from sagehen.services.s3.storage import errors as faults
from sagehen.services.s3.storage.records import NEW_BUCKET, BucketSettings, is_bucket_name
from sagehen.services.s3.tags import tags_of
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Response
from sagehen.wire.services import service

__all__ = [
    "create_bucket",
    "delete_bucket",
    "get_bucket_location",
    "head_bucket",
    "list_buckets",
]

_FIRST_REGION = "us-east-1"
_EUROPE = "EU"
"""the first name of eu-west-1"""


@functools.cache
def _regions() -> frozenset[str]:
    shape = service("s3").shape_for("BucketLocationConstraint")
    return frozenset([_FIRST_REGION, *shape.enum])


def _arn(exchange: S3Exchange, bucket: str) -> str:
    return f"arn:{exchange.call.arns.partition}:s3:::{bucket}"


async def create_bucket(exchange: S3Exchange) -> Response:
    _check_name(exchange.bucket)
    changes = _read_changes(exchange, await read_document(exchange))
    await exchange.run(lambda: _create(exchange, changes))
    arn = _arn(exchange, exchange.bucket)
    return Response(200, {"location": f"/{exchange.bucket}", "x-amz-bucket-arn": arn})


async def head_bucket(exchange: S3Exchange) -> Response:
    await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
    headers = {
        "x-amz-bucket-region": exchange.call.settings.region,
        "x-amz-bucket-arn": _arn(exchange, exchange.bucket),
    }
    return Response(200, {"content-type": "application/xml", **headers})


async def delete_bucket(exchange: S3Exchange) -> Response:
    await exchange.run(lambda: exchange.store.delete_bucket(exchange.bucket))
    return Response(204)


async def get_bucket_location(exchange: S3Exchange) -> Response:
    bucket = await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
    region = exchange.call.settings.region
    location = bucket.settings.location or ("" if region == _FIRST_REGION else region)
    body = document("LocationConstraint", [location])
    return Response(200, {"content-type": "application/xml"}, body)


async def list_buckets(exchange: S3Exchange) -> Response:
    query = exchange.query
    prefix, after = query.get("prefix", ""), query.get("continuation-token", "")
    most = query.get("max-buckets", "10000")
    limit = int(most) if most.isascii() and most.isdigit() and len(most) < 6 else 0
    if not 0 < limit <= 10000:
        raise AwsError(
            "InvalidArgument", "Argument max-buckets must be an integer between 1 and 10000", 400
        )
    region = exchange.call.settings.region
    requested_region = query.get("bucket-region", region)
    if requested_region not in {region, *_regions()}:
        raise AwsError(
            "InvalidArgument",
            f"Argument value {requested_region} is not a valid AWS Region",
            400,
            ArgumentName="bucket-region",
        )
    if requested_region != region:
        buckets = []
    else:
        buckets = await exchange.run(exchange.store.buckets)
    chosen = [b for b in buckets if b.name.startswith(prefix) and b.name > after]
    inner = [
        element(
            "Bucket",
            text("Name", bucket.name),
            text("CreationDate", iso_time(bucket.created_at)),
            text("BucketRegion", region),
            text("BucketArn", _arn(exchange, bucket.name)),
        )
        for bucket in chosen[:limit]
    ]
    more = text("ContinuationToken", chosen[limit - 1].name) if len(chosen) > limit else ""
    prefix_element = text("Prefix", prefix) if prefix else ""
    owner = owner_element(exchange.call.settings.account_id)
    body = document(
        "ListAllMyBucketsResult", [owner, element("Buckets", *inner), more, prefix_element]
    )
    return Response(200, {"content-type": "application/xml"}, body)


def _create(exchange: S3Exchange, changes: Mapping[str, Any]) -> None:
    try:
        settings = msgspec.structs.replace(NEW_BUCKET, **changes)
        exchange.store.create_bucket(exchange.bucket, settings)
    except faults.BucketExists:
        existing = exchange.store.bucket(exchange.bucket).settings
        if exchange.call.settings.region == _FIRST_REGION and _has(existing, changes):
            # us-east-1 answers so when the bucket is the caller's own.
            return
        raise AwsError(
            "BucketAlreadyOwnedByYou",
            "Your previous request to create the named bucket succeeded and you already own it.",
            409,
            BucketName=exchange.bucket,
        ) from None


def _check_name(name: str) -> None:
    if not is_bucket_name(name):
        raise AwsError(
            "InvalidBucketName",
            "The specified bucket is not valid. A name has 3 to 63 lower-case letters, digits, "
            "dots and hyphens, begins and ends with a letter or digit, has no dot beside a dot or "
            "hyphen, and is no IP address.",
            400,
            BucketName=name,
        )


def _has(settings: BucketSettings, changes: Mapping[str, Any]) -> bool:
    return all(getattr(settings, name) == value for name, value in changes.items())


def _read_changes(exchange: S3Exchange, data: bytes) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    location = None
    if data.strip():
        root = parse(data, "CreateBucketConfiguration")
        for name in ("Bucket", "Location"):
            if children(root, name):
                raise not_implemented(f"{name} in CreateBucketConfiguration")
        location = child_text(root, "LocationConstraint")
        for tags in children(root, "Tags"):
            changes["tags"] = tags_of(tags, "new bucket")
    _check_location(location, exchange.call.settings.region)
    if location == _EUROPE:
        changes["location"] = location
    if (ownership := read_ownership(exchange.headers)) is not None:
        changes["ownership"] = ownership
    acl = new_bucket_acl(exchange.headers, msgspec.structs.replace(NEW_BUCKET, **changes))
    return {**changes, "acl": acl} if "x-amz-acl" in exchange.headers else changes


def _check_location(location: str | None, region: str) -> None:
    if not location and region == _FIRST_REGION:
        return
    if location == _EUROPE and region == "eu-west-1":
        return
    if region == _FIRST_REGION and (location == region or location not in _regions()):
        raise AwsError(
            "InvalidLocationConstraint",
            "The specified location-constraint is not valid: in us-east-1 leave it out.",
            400,
            LocationConstraint=location,
        )
    if location != region:
        raise AwsError(
            "IllegalLocationConstraintException",
            f"The {location or 'unspecified'} location constraint is incompatible for the region "
            f"specific endpoint this request was sent to. This server's region is {region}.",
            400,
        )
