"""Serializes an operation's result or error to a response."""

import functools
import re
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

import msgspec

from sagehen.wire.bodies import encode_cbor, write_cbor, write_json
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Response
from sagehen.wire.query import write_query
from sagehen.wire.rest import write_rest
from sagehen.wire.services import CBOR, OperationModel, ServiceModel, Shape
from sagehen.wire.xml import document

__all__ = ["HOST_ID", "serialize", "serialize_error"]

_NO_CBOR_HEADERS = {"smithy-protocol": "rpc-v2-cbor"}
_CBOR_HEADERS = {"Content-Type": "application/cbor", **_NO_CBOR_HEADERS}

_NAMESPACES = {"cloudwatch": "com.amazonaws.cloudwatch", "sqs": "com.amazonaws.sqs"}
"""namespaces in the error types of services that left Query"""

HOST_ID = "sagehen"
"""S3's `x-amz-id-2`"""
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def serialize(
    operation: OperationModel, result: Mapping[str, Any] | None, request_id: str
) -> Response:
    """Serializes a successful result.

    Args:
        result: output members by botocore's names; None is left out at any depth. Dates are
            datetimes or seconds since the epoch. A streaming body is bytes or an asynchronous
            iterator of bytes.
    """
    service = operation.service_model
    shape = operation.output_shape
    if service.protocol == "json":
        body = write_json(shape, result or {}) if shape else b"{}"
        response = Response(200, {"Content-Type": _json_type(service)}, body)
    elif service.protocol == CBOR:
        if shape is None:
            response = Response(200, _NO_CBOR_HEADERS.copy())
        else:
            response = Response(200, _CBOR_HEADERS.copy(), write_cbor(shape, result or {}))
    elif service.protocol == "query":
        response = write_query(operation, result or {}, request_id)
    else:
        response = write_rest(operation, result or {})
    response.headers.update(_ids(service, request_id))
    return response


def serialize_error(
    service: ServiceModel, operation: OperationModel | None, error: AwsError, request_id: str
) -> Response:
    """The status is the error's, else the service model's, else 400. The body is set even for HEAD;
    the caller must not send it then."""
    shape = _error_shapes(service).get(error.code)
    status = error.status or _modelled_status(shape) or 400
    write = _ERROR_WRITERS.get(service.service_name) or _ERROR_WRITERS[service.protocol]
    response = write(service, shape, error, status, request_id)
    response.headers.update(_ids(service, request_id))
    return response


def _json_error(
    service: ServiceModel, shape: Shape | None, error: AwsError, status: int, _: str
) -> Response:
    content = _error_body(service, shape, error)
    kind = content["__type"] if service.service_name in _NAMESPACES else _type(shape, error)
    headers = {"Content-Type": _json_type(service), "x-amzn-ErrorType": kind}
    body = msgspec.json.encode(content)
    return Response(status, headers | _query_headers(service, shape, error, status), body)


def _cbor_error(
    service: ServiceModel, shape: Shape | None, error: AwsError, status: int, _: str
) -> Response:
    headers = _CBOR_HEADERS | _query_headers(service, shape, error, status)
    return Response(status, headers, encode_cbor(_error_body(service, shape, error)))


def _error_body(service: ServiceModel, shape: Shape | None, error: AwsError) -> dict[str, Any]:
    # Clients read a modelled error's `Message` case-sensitively; other errors have `message`.
    modelled = shape is not None and "Message" in shape.members
    namespace = _NAMESPACES.get(service.service_name)
    kind = f"{namespace}#{_type(shape, error)}" if namespace else error.code
    return {"__type": kind, "Message" if modelled else "message": error.message} | error.members


def _type(shape: Shape | None, error: AwsError) -> str:
    return shape.name if shape else error.code


def _query_headers(
    service: ServiceModel, shape: Shape | None, error: AwsError, status: int
) -> dict[str, str]:
    if not service.is_query_compatible:
        return {}
    return {"x-amzn-query-error": f"{_query_code(shape, error)};{_fault(status)}"}


def _query_code(shape: Shape | None, error: AwsError) -> str:
    return str(shape.error_code) if shape else error.code


def _fault(status: int) -> str:
    return "Receiver" if status >= 500 else "Sender"


_SQS_WORDS = {
    "QueueDoesNotExist": "The specified queue does not exist for this wsdl version.",
    "ReceiptHandleIsInvalid": "The input receipt handle is invalid.",
}
"""SQS's words in Query, where they differ from those in JSON"""


def _query_error(
    service: ServiceModel, shape: Shape | None, error: AwsError, status: int, request_id: str
) -> Response:
    code = _query_code(shape, error)
    words = _SQS_WORDS if service.service_name == "sqs" else {}
    message = words.get(_type(shape, error), error.message)
    inner = _elements({"Type": _fault(status), "Code": code, "Message": message} | error.members)
    namespace = service.metadata["xmlNamespace"]
    return _xml(
        status,
        "text/xml",
        f'<ErrorResponse xmlns="{namespace}"><Error>{inner}</Error>'
        f"{_elements({'RequestId': request_id})}</ErrorResponse>",
    )


def _s3_error(
    _: ServiceModel, __: Shape | None, error: AwsError, status: int, request_id: str
) -> Response:
    inner = _elements(
        {"Code": error.code, "Message": error.message}
        | error.members
        | {"RequestId": request_id, "HostId": HOST_ID}
    )
    return _xml(status, "application/xml", f"<Error>{inner}</Error>")


_ERROR_WRITERS = {
    CBOR: _cbor_error,
    "json": _json_error,
    "rest-json": _json_error,
    "query": _query_error,
    "s3": _s3_error,
}


def _json_type(service: ServiceModel) -> str:
    if service.protocol == "json":
        return f"application/x-amz-json-{service.metadata['jsonVersion']}"
    return "application/json"


def _elements(values: Mapping[str, Any]) -> str:
    return "".join([f"<{name}>{_text(value)}</{name}>" for name, value in values.items()])


def _text(value: Any) -> str:
    # Control characters from a client would make the error unreadable.
    return escape(_UNREADABLE.sub("\ufffd", str(value)))


_XML_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'


def _xml(status: int, content_type: str, body: str) -> Response:
    return Response(status, {"Content-Type": content_type}, document(body, _XML_DECLARATION))


def _ids(service: ServiceModel, request_id: str) -> dict[str, str]:
    if service.service_name == "s3":
        return {"x-amz-request-id": request_id, "x-amz-id-2": HOST_ID}
    return {"x-amzn-RequestId": request_id}


def _modelled_status(shape: Shape | None) -> int | None:
    status: int | None = shape and shape.metadata.get("error", {}).get("httpStatusCode")
    return status


@functools.cache
def _error_shapes(service: ServiceModel) -> Mapping[str, Shape]:
    """Returns error shapes by shape name and by wire code, which differ in IAM."""
    by_code = {shape.error_code: shape for shape in service.error_shapes}
    return by_code | {shape.name: shape for shape in service.error_shapes}
