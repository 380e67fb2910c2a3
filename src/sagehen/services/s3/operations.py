"""Finds a request's operation and handler."""

import functools
from collections.abc import Mapping

from sagehen.services.s3 import (
    absent,
    acl,
    bucket_settings,
    buckets,
    copy,
    listings,
    multipart,
    objects,
    tags,
    uploads,
)
from sagehen.services.s3 import (
    objects as object_attributes,
)
from sagehen.services.s3 import (
    objects as reading,
)
from sagehen.services.s3.errors import invalid_argument
from sagehen.services.s3.http.exchange import Operation
from sagehen.wire.services import service

__all__ = ["OPERATIONS", "find_operation"]

OPERATIONS: Mapping[str, Operation] = {
    "AbortMultipartUpload": multipart.abort_multipart_upload,
    "CompleteMultipartUpload": multipart.complete_multipart_upload,
    "CopyObject": copy.copy_object,
    "CreateBucket": buckets.create_bucket,
    "CreateMultipartUpload": multipart.create_multipart_upload,
    "DeleteBucket": buckets.delete_bucket,
    "DeleteObject": objects.delete_object,
    "DeleteObjectTagging": tags.delete_object_tagging,
    "DeleteObjects": objects.delete_objects,
    "GetBucketAcl": acl.get_acl,
    "GetBucketLocation": buckets.get_bucket_location,
    "GetObject": reading.get_object,
    "GetObjectAcl": acl.get_acl,
    "GetObjectAttributes": object_attributes.get_object_attributes,
    "GetObjectTagging": tags.get_object_tagging,
    "HeadBucket": buckets.head_bucket,
    "HeadObject": reading.head_object,
    "ListBuckets": buckets.list_buckets,
    "ListMultipartUploads": uploads.list_multipart_uploads,
    "ListObjectVersions": listings.list_object_versions,
    "ListObjects": listings.list_objects,
    "ListObjectsV2": listings.list_objects_v2,
    "ListParts": uploads.list_parts,
    "PutBucketAcl": acl.put_acl,
    "PutObject": objects.put_object,
    "PutObjectAcl": acl.put_acl,
    "PutObjectTagging": tags.put_object_tagging,
    "UploadPart": multipart.upload_part,
    "UploadPartCopy": multipart.upload_part_copy,
    **absent.OPERATIONS,
    **bucket_settings.OPERATIONS,
}

# operations that differ from others only in a header or query value
_PLAIN = {
    ("GET", 0): "ListBuckets",
    ("GET", 1): "ListObjects",
    ("PUT", 2): "PutObject",
    ("GET", 2): "GetObject",
    ("DELETE", 2): "DeleteObject",
}
_OF_UPLOAD = {
    "PUT": "UploadPart",
    "GET": "ListParts",
    "POST": "CompleteMultipartUpload",
    "DELETE": "AbortMultipartUpload",
}


def find_operation(
    method: str, bucket: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> str:
    """Returns botocore's name, or method and path for unknown operations.

    Raises AwsError InvalidArgument where parameters name several operations: signatures do not
    cover their order.
    """
    naming = sorted(query.keys() & _subresources())
    if len(naming) > 1:
        message = f"Conflicting query string parameters: {', '.join(naming)}"
        raise invalid_argument(message, "ResourceType", naming[0])
    level = 2 if key else 1 if bucket else 0
    plain, by_subresource = _operations()
    for name in naming:
        operation = by_subresource.get((method, level, name))
        if operation is not None:
            return operation
        return f"{method} with ?{name}"
    copying = method == "PUT" and "x-amz-copy-source" in headers
    if level == 2 and "uploadId" in query and method in _OF_UPLOAD:
        return "UploadPartCopy" if copying else _OF_UPLOAD[method]
    if level == 2 and copying:
        return "CopyObject"
    if level == 1 and method == "GET" and query.get("list-type") == "2":
        return "ListObjectsV2"
    return (
        plain.get((method, level)) or f"{method} of {('the service', 'a bucket', 'a key')[level]}"
    )


@functools.cache
def _operations() -> tuple[dict[tuple[str, int], str], dict[tuple[str, int, str], str]]:
    model = service("s3")
    plain: dict[tuple[str, int], str] = {}
    by_subresource: dict[tuple[str, int, str], str] = {}
    # Sorted, so that a new operation replaces an old one in the same place: its name is longer.
    for name in sorted(model.operation_names):
        http = model.operation_model(name).http
        path, _, query = http["requestUri"].partition("?")
        level = path.count("{")
        subresource = query.partition("&")[0]
        if not subresource:
            plain[http["method"], level] = name
        elif "=" not in subresource:
            by_subresource[http["method"], level, subresource] = name
    return {**plain, **_PLAIN}, by_subresource


@functools.cache
def _subresources() -> frozenset[str]:
    return frozenset(subresource for _, _, subresource in _operations()[1])
