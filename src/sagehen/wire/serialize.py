"""An operation's result, or its error, as a response."""

import functools
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

import msgspec

from sagehen.wire.faults import AwsError
from sagehen.wire.http import Response
from sagehen.wire.json_body import write_json
from sagehen.wire.serializers import escape_controls, write_with_moto
from sagehen.wire.services import OperationModel, ServiceModel, Shape

__all__ = ["serialize", "serialize_error"]

_HOST_ID = "sagehen"
"""S3 tells which of its hosts answered; there is one."""


def serialize(
    operation: OperationModel, result: Mapping[str, Any] | None, request_id: str
) -> Response:
    """The answer to an operation that went well.

    Args:
        result: output members by the names that botocore's model gives them. Those that are None
            are left out, at any depth. Dates are datetimes, or seconds since the epoch. A
            streaming body may be bytes or an asynchronous iterator of them.
    """
    service = operation.service_model
    if service.protocol == "json":
        shape = operation.output_shape
        body = write_json(shape, result or {}) if shape else b"{}"
        response = Response(200, {"Content-Type": _json_type(service)}, body)
    else:
        response = write_with_moto(operation, result or {}, request_id)
    response.headers.update(_ids(service, request_id))
    return response


def serialize_error(
    service: ServiceModel, operation: OperationModel | None, error: AwsError, request_id: str
) -> Response:
    """The answer to a request that failed, in the form of its service's protocol.

    The status is the error's own; where it has none, the one in the service's model, else 400.
    The body is there also for HEAD, to which none may be sent.
    """
    shape = _error_shapes(service).get(error.code)
    status = error.status or _modelled_status(shape) or 400
    write = _ERROR_WRITERS.get(service.service_name) or _ERROR_WRITERS[service.protocol]
    response = write(service, shape, error, status, request_id)
    response.headers.update(_ids(service, request_id))
    return response


def _json_error(
    service: ServiceModel, shape: Shape | None, error: AwsError, status: int, _: str
) -> Response:
    # Clients fill a modelled error's own `Message` only from a key of the same case; errors that
    # are not in the model come with the small letter.
    modelled = shape is not None and "Message" in shape.members
    body = {"__type": error.code, "Message" if modelled else "message": error.message}
    return Response(
        status,
        {"Content-Type": _json_type(service), "x-amzn-ErrorType": error.code},
        msgspec.json.encode(body | error.members),
    )


def _query_error(
    service: ServiceModel, _: Shape | None, error: AwsError, status: int, request_id: str
) -> Response:
    whose = "Receiver" if status >= 500 else "Sender"
    inner = _elements({"Type": whose, "Code": error.code, "Message": error.message} | error.members)
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
        | {"RequestId": request_id, "HostId": _HOST_ID}
    )
    return _xml(status, "application/xml", f"<Error>{inner}</Error>")


_ERROR_WRITERS = {
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
    # What came from a client must not make its own error unreadable.
    kept = "".join([c if c in "\t\n\r" or c >= " " else "\ufffd" for c in str(value)])
    return escape_controls(escape(kept))


def _xml(status: int, content_type: str, body: str) -> Response:
    document = f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'
    return Response(status, {"Content-Type": content_type}, document.encode("utf-8", "replace"))


def _ids(service: ServiceModel, request_id: str) -> dict[str, str]:
    if service.service_name == "s3":
        return {"x-amz-request-id": request_id, "x-amz-id-2": _HOST_ID}
    return {"x-amzn-RequestId": request_id}


def _modelled_status(shape: Shape | None) -> int | None:
    status: int | None = shape and shape.metadata.get("error", {}).get("httpStatusCode")
    return status


@functools.cache
def _error_shapes(service: ServiceModel) -> Mapping[str, Shape]:
    """By the name of the shape and by the code on the wire, which differ in IAM."""
    shapes = {}
    for shape in service.error_shapes:
        shapes[shape.name] = shapes[shape.error_code] = shape
    return shapes
