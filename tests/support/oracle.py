"""botocore's own serializers and parsers, as the judge of ours."""

import functools
import io
from urllib.parse import urlsplit

from botocore.awsrequest import HeadersDict, create_request_object, prepare_request_dict
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from sagehen.wire.http import Request

__all__ = [
    "OPERATIONS",
    "client_model",
    "error_as_client_reads",
    "read_by_client",
    "sent_by_client",
]

_S3 = """
    AbortMultipartUpload CompleteMultipartUpload CopyObject CreateBucket CreateMultipartUpload
    DeleteBucket DeleteObject DeleteObjectTagging DeleteObjects GetBucketAcl GetBucketLocation
    GetBucketVersioning GetObject GetObjectAcl GetObjectTagging HeadBucket HeadObject ListBuckets
    ListMultipartUploads ListObjects ListObjectsV2 ListParts PutObject PutObjectAcl
    PutObjectTagging UploadPart UploadPartCopy
"""


@functools.cache
def client_model(service):
    """The model as a client has it."""
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


OPERATIONS = [
    *(("sagemaker", name) for name in client_model("sagemaker").operation_names),
    *(("sagemaker-runtime", name) for name in client_model("sagemaker-runtime").operation_names),
    *(("s3", name) for name in _S3.split()),
    ("sts", "GetCallerIdentity"),
    ("iam", "GetRole"),
]
"""Every operation of sagemaker, and those that are used of the others."""


def sent_by_client(service, operation, params):
    """The request that a client sends."""
    model = client_model(service)
    serializer = create_serializer(model.protocol, include_validation=False)
    wired = serializer.serialize_to_request(params, model.operation_model(operation))
    prepare_request_dict(wired, endpoint_url="http://127.0.0.1:9000", context={})
    sent = create_request_object(wired).prepare()
    url = urlsplit(sent.url)
    headers = {name.lower(): _header(value) for name, value in sent.headers.items()}
    body = sent.body or b""
    body = body.encode() if isinstance(body, str) else body
    return Request(sent.method, url.path or "/", url.query, headers, body)


def read_by_client(service, operation, response):
    """The members that a client reads from a response."""
    model = client_model(service).operation_model(operation)
    parser = create_parser(client_model(service).protocol)
    parsed = parser.parse(_as_client(model, response), model.output_shape)
    parsed.pop("ResponseMetadata", None)
    if model.has_streaming_output:
        name = model.output_shape.serialization["payload"]
        parsed[name] = parsed[name].read()
    return parsed


def error_as_client_reads(service, response):
    """`Error` and the modelled members, as a client puts them into its exception."""
    model = client_model(service)
    parser = create_parser(model.protocol)
    wired = {
        "headers": HeadersDict(response.headers),
        "status_code": response.status,
        "body": response.body,
    }
    parsed = parser.parse(wired, None)
    shape = model.shape_for_error_code(parsed["Error"]["Code"])
    if shape is not None:
        parsed.update(parser.parse(wired, shape))
    return parsed


def _as_client(model, response):
    body = io.BytesIO(response.body) if model.has_streaming_output else response.body
    return {
        "headers": HeadersDict(response.headers),
        "status_code": response.status,
        "body": body,
    }


def _header(value):
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
