"""moto's parsers of the query and REST protocols, with fixes found by our tests.

- Values of the wrong type are refused, not coerced.
- Repeated elements are refused where one is expected; moto returned XML nodes.
- An empty required blob body is passed as a parameter.
- Missing labels and headers are absent, not None.
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
    """Raises MalformedValue."""
    protocol = operation.service_model.protocol
    parser = _PARSERS[protocol](as_motos(operation), values.timestamp, values.blob)
    try:
        parsed: dict[str, Any] = parser.parse(_request_dict(request, operation, protocol))
    except moto.RequestParserError as error:
        raise MalformedValue(str(error)[:256]) from None
    return parsed


class _Headers(dict[str, str]):
    def __contains__(self, name: object) -> bool:
        return super().__contains__(str(name).lower())

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())


class _Values(dict[str, str]):
    """Lookups return the first of repeated parameters, or a list on request."""

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
    """Returns SQS's queue, which the oldest clients name only by the URL's path."""
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
    """Fixes for both REST parsers; must precede moto's class in the bases."""

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
    return (node.text or "").strip() if hasattr(node, "text") else node


_PARSERS: dict[str, Any] = {"query": _Query, "rest-json": _RestJSON, "rest-xml": _RestXML}
