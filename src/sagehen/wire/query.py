"""Reads requests and writes responses of the Query protocol: forms, and XML in return."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from sagehen.wire.http import Request, Response
from sagehen.wire.parameters import form_parameters
from sagehen.wire.services import OperationModel, Shape
from sagehen.wire.values import MalformedValue, UnknownMember
from sagehen.wire.walk import Reader, body_members, read_text, wire_name
from sagehen.wire.xml import XmlWriter, document, simple_element

__all__ = ["read_query", "write_query"]


def read_query(request: Request, operation: OperationModel) -> dict[str, Any]:
    """Raises MalformedValue, UnknownMember for parameters that the operation does not have, and
    AwsError for repeated ones."""
    sent = dict(form_parameters(request))
    is_sqs = operation.service_model.service_name == "sqs"
    reader = _QueryReader({**(_queue_of_path(request) if is_sqs else {}), **sent})
    params = reader.structure(operation.input_shape, "")
    for name in sent.keys() - reader.read_names:
        if name not in _PROTOCOL_NAMES and not name.startswith("X-Amz-"):
            raise UnknownMember("", name[:128])
    return params


_PROTOCOL_NAMES = frozenset(
    (
        "Action",
        "Version",
        "AWSAccessKeyId",
        "Expires",
        "SecurityToken",
        "Signature",
        "SignatureMethod",
        "SignatureVersion",
        "Timestamp",
    )
)
"""parameters of the protocol and of signatures; those of Signature Version 4 begin with `X-Amz-`"""


def _queue_of_path(request: Request) -> dict[str, str]:
    """Returns SQS's queue, which the oldest clients name only by the URL's path."""
    if not request.raw_path.strip("/"):
        return {}
    return {"QueueUrl": f"http://{request.headers.get('host', '')}{unquote(request.raw_path)}"}


_NUMBER = re.compile(r"([1-9][0-9]{0,8})(?:\.|$)")


class _QueryReader(Reader[str]):
    """Reads nested values by their parameters' prefixes, e.g. `MetricData.member.1`."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._parameters = parameters
        self._names = sorted(parameters)
        self.read_names: set[str] = set()

    def members(self, shape: Shape, node: str) -> Iterator[tuple[str, Shape, str]]:
        for name, key, member in body_members(shape):
            prefix = f"{node}.{key}" if node else key
            if self._is_sent(member, prefix):
                yield name, member, prefix

    def items(self, shape: Shape, node: str) -> list[str]:
        if self._parameters.get(node) == "":
            self.read_names.add(node)
        items = self._numbered(_items_prefix(shape, node))
        return [item for item in items if self._is_sent(shape.member, item)]

    def entries(self, shape: Shape, node: str) -> list[tuple[str, str]]:
        entries = self._numbered(_entries_prefix(shape, node))
        return [self._entry(shape, entry) for entry in entries if self._has_parts(entry)]

    def _entry(self, shape: Shape, entry: str) -> tuple[str, str]:
        key = f"{entry}.{wire_name(shape.key, 'key')}"
        value = f"{entry}.{wire_name(shape.value, 'value')}"
        for part, prefix in ((shape.key, key), (shape.value, value)):
            if not self._is_sent(part, prefix):
                raise MalformedValue(f"the parameter {prefix[:128]} is missing")
        self.read_names.add(key)
        return self._parameters[key], value

    def scalar(self, shape: Shape, node: str) -> Any:
        self.read_names.add(node)
        return read_text(shape, self._parameters[node])

    def _is_sent(self, shape: Shape, prefix: str) -> bool:
        kind = shape.type_name
        if kind == "structure":
            return self._has_parts(prefix)
        if kind == "list":
            # An empty value stands for an empty list.
            return self._parameters.get(prefix) == "" or bool(self.items(shape, prefix))
        if kind == "map":
            return bool(self._numbered(_entries_prefix(shape, prefix)))
        return prefix in self._parameters

    def _numbered(self, prefix: str) -> list[str]:
        """Returns the prefixes of items or entries by number. Clients leave out the numbers of
        empty structures."""
        positions, dotted = set(), f"{prefix}."
        for index in range(bisect_left(self._names, dotted), len(self._names)):
            name = self._names[index]
            if not name.startswith(dotted):
                break
            if number := _NUMBER.match(name, len(dotted)):
                positions.add(int(number[1]))
        return [f"{prefix}.{position}" for position in sorted(positions)]

    def _has_parts(self, prefix: str) -> bool:
        position = bisect_left(self._names, f"{prefix}.")
        return position < len(self._names) and self._names[position].startswith(f"{prefix}.")


def _items_prefix(shape: Shape, prefix: str) -> str:
    if not shape.serialization.get("flattened"):
        return f"{prefix}.{wire_name(shape.member, 'member')}"
    above, dot, name = prefix.rpartition(".")
    return above + dot + wire_name(shape.member, name)


def _entries_prefix(shape: Shape, prefix: str) -> str:
    return prefix if shape.serialization.get("flattened") else f"{prefix}.entry"


def write_query(operation: OperationModel, result: Mapping[str, Any], request_id: str) -> Response:
    writer = XmlWriter("iso8601")
    name = f"{operation.name}Response"
    opened = writer.open(name, f' xmlns="{operation.service_model.metadata["xmlNamespace"]}"')
    shape = operation.output_shape
    if shape is not None:
        wrapper = shape.serialization.get("resultWrapper", f"{operation.name}Result")
        wrapped = writer.open(wrapper)
        writer.members(shape, result)
        writer.close(wrapper, wrapped)
    writer.raw(f"<ResponseMetadata>{simple_element('RequestId', request_id)}</ResponseMetadata>")
    writer.close(name, opened)
    return Response(200, {"Content-Type": "text/xml"}, document(writer.text()))
