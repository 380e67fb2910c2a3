"""moto's parsers of the query and REST protocols, mended where our tests showed them wrong.

- A value that is not of its type is refused, not taken as near as it comes.
- An element that comes twice where one is meant is refused; it was handed on as XML nodes.
- A required blob that is the whole body is a parameter also where it is empty.
- A label or header that is missing is left out, not None.
"""

from typing import Any
from urllib.parse import unquote

from moto.core import parse as moto

from sagehen.wire import values
from sagehen.wire.http import Request
from sagehen.wire.match import path_labels
from sagehen.wire.moto_models import as_motos
from sagehen.wire.parameters import form_parameters, parameters_of
from sagehen.wire.services import OperationModel, Shape
from sagehen.wire.values import MalformedValue

__all__ = ["read_with_moto"]


def read_with_moto(request: Request, operation: OperationModel) -> dict[str, Any]:
    """The parameters of a request of the query, REST-JSON or REST-XML protocol.

    Raises:
        Malformed: it cannot be read as the operation's parameters.
    """
    protocol = operation.service_model.protocol
    parser = _PARSERS[protocol](as_motos(operation), values.timestamp, values.blob)
    try:
        parsed: dict[str, Any] = parser.parse(_request_dict(request, operation, protocol))
    except moto.RequestParserError as error:
        raise MalformedValue(str(error)[:256]) from None
    return parsed


class _Headers(dict[str, str]):
    """Header names in lower case, asked for in any."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())


class _Values(dict[str, str]):
    """Query parameters; of one that comes twice the first, unless a list is asked for."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        super().__init__(reversed(pairs))
        self._pairs = pairs

    def getlist(self, name: str) -> list[str] | None:
        return [value for key, value in self._pairs if key == name] or None

    def to_dict(self, flat: bool = True) -> dict[str, list[str]]:
        return {name: self.getlist(name) or [] for name in self}


def _request_dict(request: Request, operation: OperationModel, protocol: str) -> dict[str, Any]:
    if protocol == "query":
        pairs = form_parameters(request) + _of_path(request, operation)
    else:
        pairs = parameters_of(request.raw_query)
    return {
        "body": request.body,
        "headers": _Headers(request.headers),
        "method": request.method,
        "url_path": request.raw_path,
        "url_params": path_labels(operation.http["requestUri"], request.raw_path),
        "values": _Values(pairs),
    }


def _of_path(request: Request, operation: OperationModel) -> list[tuple[str, str]]:
    """SQS's queue, which the oldest clients name by the URL that they send to and nothing else."""
    if operation.service_model.service_name != "sqs" or request.raw_path.strip("/") == "":
        return []
    return [("QueueUrl", f"http://{request.headers.get('host', '')}{unquote(request.raw_path)}")]


class _Query(moto.QueryParser):  # type: ignore[misc]
    def _parse_integer(self, shape: Shape, node: Any, prefix: str = "") -> Any:
        value = self._default_handle(shape, node, prefix)
        return value if value is moto.UNDEFINED else values.integer(value, shape.type_name)

    _parse_long = _parse_integer

    def _parse_float(self, shape: Shape, node: Any, prefix: str = "") -> Any:
        value = self._default_handle(shape, node, prefix)
        return value if value is moto.UNDEFINED else values.number(value)

    _parse_double = _parse_float

    def _parse_boolean(self, shape: Shape, node: Any, prefix: str = "") -> Any:
        value = self._default_handle(shape, node, prefix)
        return value if value is moto.UNDEFINED else values.boolean(value)


class _Rest:
    """What both REST parsers need mended; stands before moto's class."""

    def _parse_shape(self, shape: Shape, node: Any) -> Any:
        if isinstance(node, list) and shape.type_name not in ("list", "map"):
            raise MalformedValue(f"{shape.name} comes more than once")
        return super()._parse_shape(shape, node)  # type: ignore[misc]

    def _parse_payload(
        self, request: dict[str, Any], shape: Shape, members: Any, parsed: dict[str, Any]
    ) -> None:
        payload = shape.serialization.get("payload")
        if payload is not None and members[payload].type_name == "blob":
            if request["body"] or payload in shape.required_members:
                parsed[payload] = request["body"]
        else:
            super()._parse_payload(request, shape, members, parsed)  # type: ignore[misc]

    def _parse_non_payload_attrs(
        self, request: dict[str, Any], shape: Shape, members: Any, parsed: dict[str, Any]
    ) -> None:
        super()._parse_non_payload_attrs(request, shape, members, parsed)  # type: ignore[misc]
        for name in [name for name, value in parsed.items() if value in (None, {})]:
            del parsed[name]

    def _parse_integer(self, shape: Shape, node: Any) -> int:
        return values.integer(_text(node), shape.type_name)

    _parse_long = _parse_integer

    def _parse_float(self, _: Shape, node: Any) -> float:
        return values.number(_text(node))

    _parse_double = _parse_float

    def _parse_boolean(self, _: Shape, node: Any) -> bool:
        return values.boolean(_text(node))


class _RestJSON(_Rest, moto.RestJSONParser):  # type: ignore[misc]
    pass


class _RestXML(_Rest, moto.RestXMLParser):  # type: ignore[misc]
    pass


def _text(node: Any) -> Any:
    """An XML element's text; anything else as it is."""
    return (node.text or "").strip() if hasattr(node, "text") else node


_PARSERS: dict[str, Any] = {"query": _Query, "rest-json": _RestJSON, "rest-xml": _RestXML}
