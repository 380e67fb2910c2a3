"""Checks that a model's data exists, as SageMaker does at CreateModel; raises AwsError."""

import re
from typing import Any

from sagehen.base.errors import NotFound, Unavailable
from sagehen.frame.context import RequestContext
from sagehen.services.s3.storage.errors import NoSuchBucket, NoSuchKey
from sagehen.services.s3.storage.records import ListingQuery
from sagehen.services.sagemaker.errors import refused
from sagehen.wire.errors import AwsError

__all__ = ["check_model_data", "model_data_version"]

_S3_URL = re.compile(r"s3://([^/]+)/(.+)", re.DOTALL)
_S3_FOLDER = re.compile(r"s3://([^/]+)/?(.*)", re.DOTALL)


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
            bucket, _ = _split_folder(url)
            call.objects.bucket(bucket)
        else:
            call.objects.head(*_split(url))
    except NotFound as error:
        raise _no_access(url, role, call.settings.region, _missing(url, error)) from error


def model_data_version(call: RequestContext, container: dict[str, Any]) -> tuple[str, str] | None:
    """Returns address and ETag of a container's object; None if it has none."""
    source = container.get("ModelDataSource", {}).get("S3DataSource", {})
    url = source.get("S3Uri") or container.get("ModelDataUrl", "")
    match = _S3_URL.fullmatch(url)
    if match is None or url.endswith("/") or container.get("Mode") == "MultiModel":
        return None
    try:
        return url, call.objects.head(match[1], match[2]).etag
    except (NotFound, Unavailable):
        return None  # the download reports it


def _check_prefix(call: RequestContext, url: str) -> None:
    bucket, prefix = _split_folder(url)
    listing = call.objects.list_page(bucket, ListingQuery(prefix=prefix, limit=1))
    if not listing.objects:
        raise NotFound(f"There are no objects below {url}.")


def _split(url: str) -> tuple[str, str]:
    match = _S3_URL.fullmatch(url)
    if match is None:
        raise refused(f"{url} is not the address of an S3 object: s3://bucket/key.")
    return match[1], match[2]


def _split_folder(url: str) -> tuple[str, str]:
    match = _S3_FOLDER.fullmatch(url)
    if match is None or not url.endswith("/"):
        raise refused(f"{url} is not an S3 prefix: s3://bucket/prefix/, with a slash at its end.")
    return match[1], match[2]


def _missing(url: str, error: NotFound) -> str:
    if isinstance(error, NoSuchBucket):
        return f"There is no bucket {_S3_FOLDER.fullmatch(url)[1]}."  # type: ignore[index]
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
