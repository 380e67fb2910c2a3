"""Checks of arguments that training jobs and transform jobs share."""

from collections.abc import Mapping
from typing import Any

from sagehen.base.errors import Invalid, NotFound
from sagehen.frame.instance_types import require_instance_type
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.s3.storage.records import ListingQuery, is_bucket_name
from sagehen.services.s3.storage.store import ObjectStore
from sagehen.services.sagemaker.errors import quota_exceeded, refused

__all__ = ["check_bucket", "check_input", "check_instances", "s3_location"]


def s3_location(member: str, url: str) -> Location:
    try:
        location = parse_location(url)
    except Invalid as error:
        raise refused(f"{member}: {error}") from error
    if not is_bucket_name(location.bucket) or not url.isprintable():
        raise refused(f"{member} {url!r} is not an address in S3. Give s3://bucket/prefix.")
    return location


def check_bucket(member: str, url: str, objects: ObjectStore) -> None:
    """Checks early: a misspelt bucket would lose the results of hours."""
    bucket = s3_location(member, url).bucket
    try:
        objects.bucket(bucket)
    except NotFound as error:
        raise refused(
            f"{member} is {url}, but there is no bucket {bucket}. Create it, or name another."
        ) from error


def check_input(
    member: str, source: Mapping[str, Any], role: str, region: str, objects: ObjectStore
) -> None:
    """Checks that an S3DataSource names an object. `role`: as SageMaker's sentence has it."""
    url = source["S3Uri"]
    location = s3_location(member, url)
    try:
        if source["S3DataType"] == "S3Prefix":
            query = ListingQuery(prefix=location.key, limit=1)
            exists = bool(objects.list_page(location.bucket, query).objects)
        else:
            objects.head(location.bucket, location.key)
            exists = True
    except NotFound:
        exists = False
    if not exists:
        raise refused(
            f'No S3 objects found under S3 URL "{url}" given in input data source. Please ensure '
            f"that the bucket exists in the selected region ({region}), that objects exist under "
            f'that S3 prefix, and that the {role} has "s3:ListBucket" permissions on bucket '
            f'"{location.bucket}".'
        )


def check_instances(kind: str, instance_type: str, count: int, limit: int, setting: str) -> None:
    """`kind`: "training" or "transform". `limit`: instances of each job, from the `setting`."""
    try:
        require_instance_type(instance_type)
    except Invalid as error:
        raise refused(str(error)) from error
    if count > limit:
        reason = f"The limit is Sagehen's setting {setting}, of each job."
        raise quota_exceeded(f"{instance_type} for {kind} job usage", limit, 0, count, reason)
