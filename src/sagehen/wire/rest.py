"""Reads requests and writes responses of the REST protocols: path, query and headers hold most
members, and the body the others, in JSON or XML."""

import base64
import json
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

from sagehen.wire import values
from sagehen.wire.bodies import read_json, write_json
from sagehen.wire.http import Request, Response
from sagehen.wire.match import path_labels
from sagehen.wire.parameters import parameters_of
from sagehen.wire.services import OperationModel, Shape
from sagehen.wire.values import MalformedValue
from sagehen.wire.walk import body_members, read_text, wire_name
from sagehen.wire.xml import XmlWriter, document, read_xml

__all__ = ["read_rest", "write_rest"]


def read_rest(request: Request, operation: OperationModel) -> dict[str, Any]:
    """Raises MalformedValue."""
    shape = operation.input_shape
    labels = path_labels(operation.http["requestUri"], request.raw_path)
    query = _grouped(request.raw_query)
    params: dict[str, Any] = {}
    for name, member in shape.members.items():
        location = member.serialization.get("location")
        if location is None:
            continue
        try:
            value = _read_located(location, wire_name(member, name), member, request, labels, query)
        except MalformedValue as error:
            raise error.inside(name) from None
        if value is not None:
            params[name] = value
    return params | _read_body(request.body, operation)


def _grouped(raw_query: str) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in parameters_of(raw_query):
        grouped.setdefault(name, []).append(value)
    return grouped


def _read_located(
    location: str,
    name: str,
    shape: Shape,
    request: Request,
    labels: Mapping[str, str],
    query: Mapping[str, list[str]],
) -> Any:
    """Returns None for what was not sent."""
    if location == "headers":
        return _read_header_map(name.lower(), request.headers)
    if location == "header":
        return _read_header(shape, request.headers.get(name.lower()))
    if location == "uri":
        text = labels.get(name)
        return None if text is None else read_text(shape, text)
    return _read_query(shape, query.get(name))


def _read_header(shape: Shape, text: str | None) -> Any:
    if text is None:
        return None
    if shape.type_name == "list":
        return [read_text(shape.member, item.strip()) for item in text.split(",")]
    if shape.serialization.get("jsonvalue"):
        try:
            return json.loads(values.blob(text))
        except (ValueError, RecursionError):
            raise MalformedValue("the header does not hold JSON in base64") from None
    return read_text(shape, text)


def _read_header_map(prefix: str, headers: Mapping[str, str]) -> dict[str, str] | None:
    """Returns e.g. an object's metadata, from the headers `x-amz-meta-...`."""
    entries = {
        name[len(prefix) :]: value for name, value in headers.items() if name.startswith(prefix)
    }
    return entries or None


def _read_query(shape: Shape, sent: list[str] | None) -> Any:
    if sent is None:
        return None
    if shape.type_name == "list":
        return [read_text(shape.member, text) for text in sent]
    if len(sent) > 1:
        raise MalformedValue("the query parameter comes more than once")
    return read_text(shape, sent[0])


def _read_body(body: bytes, operation: OperationModel) -> dict[str, Any]:
    shape = operation.input_shape
    payload = shape.serialization.get("payload")
    if payload is None:
        if not body or not body_members(shape):
            return {}
        return _read_document(shape, body, operation, wire_name(shape, shape.name))
    member = shape.members[payload]
    if member.type_name in ("blob", "string"):
        if body:
            return {payload: body if member.type_name == "blob" else _decoded(body)}
        # A client sends an empty body for no payload, too, unless one is required.
        is_sent = member.type_name == "blob" and payload in shape.required_members
        return {payload: b""} if is_sent else {}
    if not body:
        return {}
    return {payload: _read_document(member, body, operation, wire_name(member, payload))}


def _read_document(
    shape: Shape, body: bytes, operation: OperationModel, root_name: str
) -> dict[str, Any]:
    if operation.service_model.protocol == "rest-json":
        return read_json(shape, body)
    return read_xml(shape, body, root_name)


def _decoded(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise MalformedValue("the body is not valid UTF-8") from None


def write_rest(operation: OperationModel, result: Mapping[str, Any]) -> Response:
    """A streaming body and an event stream's frames are sent unchanged."""
    shape = operation.output_shape
    response = Response(operation.http.get("responseCode", 200))
    if shape is not None:
        _write_headers(response.headers, shape, result)
    payload = shape.serialization.get("payload") if shape else None
    if payload is not None and _is_stream(shape.members[payload]):
        body = result.get(payload)
        response.body = b"" if body is None else body.encode() if isinstance(body, str) else body
        if shape.members[payload].serialization.get("eventstream"):
            response.headers["Content-Type"] = "application/vnd.amazon.eventstream"
        return response
    write = _write_json if operation.service_model.protocol == "rest-json" else _write_xml
    write(response, operation, payload, result)
    return response


def _is_stream(shape: Shape) -> bool:
    return shape.type_name in ("blob", "string") or bool(shape.serialization.get("eventstream"))


def _write_headers(headers: dict[str, str], shape: Shape, result: Mapping[str, Any]) -> None:
    for name, member in shape.members.items():
        location = member.serialization.get("location")
        value = result.get(name)
        if value is None or location not in ("header", "headers"):
            continue
        key = wire_name(member, "" if location == "headers" else name)
        if location == "headers":
            headers.update((key + suffix, str(inner)) for suffix, inner in value.items())
        else:
            headers[key] = _header_text(member, value)


def _header_text(shape: Shape, value: Any) -> str:
    kind = shape.type_name
    if kind == "boolean":
        return "true" if value else "false"
    if kind == "timestamp":
        return values.date_text(value, shape.serialization.get("timestampFormat", "rfc822"))
    if kind == "list":
        return ",".join(_header_text(shape.member, item) for item in value)
    if shape.serialization.get("jsonvalue"):
        return base64.b64encode(json.dumps(value, separators=(",", ":")).encode()).decode()
    return str(value)


def _write_json(
    response: Response, operation: OperationModel, payload: str | None, result: Mapping[str, Any]
) -> None:
    shape = operation.output_shape
    response.headers["Content-Type"] = "application/json"
    if shape is None:
        response.body = b"{}"
    elif payload is None:
        response.body = write_json(shape, result)
    else:
        response.body = write_json(shape.members[payload], result.get(payload) or {})


_XML_DECLARATION = '<?xml version="1.0" encoding="utf-8"?>\n'
_S3_NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_S3_ROOTS = {
    "CompleteMultipartUpload": "CompleteMultipartUploadResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetBucketAcl": "AccessControlPolicy",
    "GetBucketLocation": "LocationConstraint",
    "GetBucketTagging": "Tagging",
    "GetBucketVersioning": "VersioningConfiguration",
    "GetObjectAcl": "AccessControlPolicy",
    "GetObjectTagging": "Tagging",
    "ListBuckets": "ListAllMyBucketsResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "ListObjectVersions": "ListVersionsResult",
    "ListObjects": "ListBucketResult",
    "ListObjectsV2": "ListBucketResult",
    "ListParts": "ListPartsResult",
}
"""roots that differ from the payload's name; absent from botocore's model"""


def _write_xml(
    response: Response, operation: OperationModel, payload: str | None, result: Mapping[str, Any]
) -> None:
    shape = operation.output_shape
    if shape is None or not body_members(shape):
        return
    root = _S3_ROOTS.get(operation.name, payload or f"{operation.name}Response")
    writer = XmlWriter("iso8601-milliseconds")
    opened = writer.open(root, _S3_NAMESPACE)
    if operation.name == "GetBucketLocation":
        # The only document whose root holds text; the model does not say so.
        writer.raw(escape(result.get("LocationConstraint") or ""))
    elif payload is None:
        writer.members(shape, result)
    else:
        writer.members(shape.members[payload], result.get(payload) or {})
    writer.close(root, opened)
    response.headers["Content-Type"] = "application/xml"
    response.body = document(writer.text(), _XML_DECLARATION)
