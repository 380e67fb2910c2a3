"""Checks that a model's data exists, as SageMaker does at CreateModel; raises AwsError."""

from typing import Any

from sagehen.base.errors import Invalid, NotFound, Unavailable
from sagehen.frame.context import RequestContext
from sagehen.frame.s3_locations import Location, parse_location
from sagehen.services.s3.storage.errors import NoSuchBucket, NoSuchKey
from sagehen.services.s3.storage.records import ListingQuery
from sagehen.services.sagemaker.errors import refused
from sagehen.wire.errors import AwsError

__all__ = ["check_model_data", "model_data_version"]


def check_model_data(call: RequestContext, container: dict[str, Any], role: str | None) -> None:
    """Checks that the object or prefix of a container exists."""
    source = container.get("ModelDataSource", {}).get("S3DataSource")
    if source is None and "ModelDataUrl" not in container:
        return
    url = source["S3Uri"] if source else container["ModelDataUrl"]
    try:
        if source is not None and source["S3DataType"] == "S3Prefix":
            _check_prefix(call, url)
        elif container.get("Mode") == "MultiModel":
            call.objects.bucket(_folder_of(url).bucket)
        else:
            location = _object_of(url)
            call.objects.head(location.bucket, location.key)
    except NotFound as error:
        raise _no_access(url, role, call.settings.region, _missing(url, error)) from error


def model_data_version(call: RequestContext, container: dict[str, Any]) -> tuple[str, str] | None:
    """Returns address and ETag of a container's object; None if it has none."""
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    url = source.get("S3Uri") or container.get("ModelDataUrl", "")
    if container.get("Mode") == "MultiModel":
        return None
    try:
        location = parse_location(url)
        if location.is_prefix:
            return None
        return url, call.objects.head(location.bucket, location.key).etag
    except (Invalid, NotFound, Unavailable):
        return None  # the download reports it


def _check_prefix(call: RequestContext, url: str) -> None:
    location = _folder_of(url)
    listing = call.objects.list_page(location.bucket, ListingQuery(prefix=location.key, limit=1))
    if not listing.objects:
        raise NotFound(f"There are no objects below {url}.")


def _object_of(url: str) -> Location:
    location = _location_of(url)
    if not location.key:
        raise refused(f"{url} is not the address of an object in S3: s3://bucket/key.")
    return location


def _folder_of(url: str) -> Location:
    location = _location_of(url)
    if not url.endswith("/"):
        raise refused(f"{url} is not an S3 prefix: s3://bucket/prefix/, with a slash at its end.")
    return location


def _location_of(url: str) -> Location:
    try:
        return parse_location(url)
    except Invalid as error:
        raise refused(str(error)) from error


def _missing(url: str, error: NotFound) -> str:
    if isinstance(error, NoSuchBucket):
        return f"There is no bucket {parse_location(url).bucket}."
    if isinstance(error, NoSuchKey):
        return f"There is no object {url}."
    return str(error)


def _no_access(url: str, role: str | None, region: str, missing: str) -> AwsError:
    named = f'the role "{role}"' if role else "the role"
    return refused(
        f"Could not access model data at {url}. Please ensure that {named} exists "
        'and that its trust relationship policy allows the action "sts:AssumeRole" for the service '
        'principal "sagemaker.amazonaws.com". Also ensure that the role has "s3:GetObject" '
        f"permissions and that the object is located in {region}. Here: {missing}"
    )
