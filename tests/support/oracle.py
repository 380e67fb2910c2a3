"""botocore's own serializers and parsers, as the judge of ours."""

import functools
import io
from urllib.parse import urlsplit

from botocore.awsrequest import HeadersDict, create_request_object, prepare_request_dict
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.parsers import create_parser
from botocore.serialize import create_serializer
from moto.core.loaders import create_loader

from sagehen.wire.http import Request

__all__ = [
    "OF_SEVERAL_PROTOCOLS",
    "OPERATIONS",
    "client_model",
    "code_of_class",
    "error_as_client_reads",
    "read_by_client",
    "sent_by_client",
]


@functools.cache
def client_model(service, protocol=None):
    """The model as a client has it; of a service with several protocols, as one has that speaks
    `protocol`."""
    description = Loader().load_service_model(service, "service-2")
    if (service, protocol) == ("sqs", "query"):
        description = _as_it_was(create_loader().load_service_model(service, "service-2"))
    spoken = protocol or ServiceModel(description, service).resolved_protocol
    metadata = {**description["metadata"], "protocol": spoken}
    return ServiceModel({**description, "metadata": metadata}, service)


def _as_it_was(node):
    """The model of SQS as clients had it that spoke Query: with its names of elements."""
    if isinstance(node, list):
        return [_as_it_was(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: _as_it_was(value) for key, value in node.items()}
    if isinstance(name := made.pop("locationNameForQueryCompatibility", None), str):
        made["locationName"] = name
    return made


def _operations(service):
    """All but the deprecated, whose bindings S3 gave to newer ones."""
    model = client_model(service)
    return [name for name in model.operation_names if not model.operation_model(name).deprecated]


OPERATIONS = [
    (service, name)
    for service in ("sagemaker", "sagemaker-runtime", "s3", "sts", "iam", "sns", "logs", "events")
    for name in _operations(service)
]
"""Every operation of the services with one protocol."""

OF_SEVERAL_PROTOCOLS = [
    *(("sqs", name, "json") for name in _operations("sqs")),
    *(
        ("sqs", name, "query")
        for name in _operations("sqs")
        # They are younger than the last clients that spoke Query.
        if "MessageMoveTask" not in name
    ),
    *(
        ("cloudwatch", name, protocol)
        for protocol in ("json", "smithy-rpc-v2-cbor", "query")
        for name in _operations("cloudwatch")
    ),
]
"""Every operation of the others, in each protocol."""


def sent_by_client(service, operation, params, protocol=None):
    """The request that a client sends."""
    model = client_model(service, protocol)
    serializer = create_serializer(model.protocol, include_validation=False)
    wired = serializer.serialize_to_request(params, model.operation_model(operation))
    prepare_request_dict(wired, endpoint_url="http://127.0.0.1:9000", context={})
    sent = create_request_object(wired).prepare()
    url = urlsplit(sent.url)
    headers = {name.lower(): _header(value) for name, value in sent.headers.items()}
    body = sent.body or b""
    body = body.encode() if isinstance(body, str) else body
    return Request(sent.method, url.path or "/", url.query, headers, body)


def read_by_client(service, operation, response, protocol=None):
    """The members that a client reads from a response."""
    model = client_model(service, protocol).operation_model(operation)
    parser = create_parser(client_model(service, protocol).protocol)
    parsed = parser.parse(_as_client(model, response), model.output_shape)
    parsed.pop("ResponseMetadata", None)
    if model.has_streaming_output:
        name = model.output_shape.serialization["payload"]
        parsed[name] = parsed[name].read()
    return parsed


def error_as_client_reads(service, response, protocol=None):
    """`Error` and the modelled members, as a client puts them into its exception."""
    model = client_model(service, protocol)
    parser = create_parser(model.protocol)
    wired = {
        "headers": HeadersDict(response.headers),
        "status_code": response.status,
        "body": response.body,
    }
    parsed = parser.parse(wired, None)
    shape = model.shape_for_error_code(code_of_class(service, parsed["Error"]))
    if shape is not None:
        parsed.update(parser.parse(wired, shape))
    return parsed


def code_of_class(service, error):
    """What a client picks its exception's class by; of SQS it has no other code in its model."""
    return error.get("QueryErrorCode" if service == "sqs" else "Code", error["Code"])


def _as_client(model, response):
    body = io.BytesIO(response.body) if model.has_streaming_output else response.body
    return {
        "headers": HeadersDict(response.headers),
        "status_code": response.status,
        "body": body,
    }


def _header(value):
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
