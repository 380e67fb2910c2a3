"""A JSON body as an operation's parameters, and an operation's result as a JSON body.

Our own and not moto's: that one takes a string for a list, drops the fraction of a number that
should be whole, reads a body that is not JSON as a message, and writes what is under an empty key
of a map into the structure around it.
"""

import base64
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from sagehen.wire import values
from sagehen.wire.services import Shape
from sagehen.wire.values import Malformed

__all__ = ["read_json", "write_json"]


def read_json(shape: Shape, body: bytes) -> dict[str, Any]:
    """The members of `shape` that the body has. Members that the shape lacks are ignored.

    Raises:
        Malformed: the body is not JSON, or a value is not of its member's type.
    """
    if not body:
        return {}
    try:
        sent = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is not valid JSON: {error}") from None
    return _structure(shape, sent)


def write_json(shape: Shape, result: Any) -> bytes:
    """The members of `shape` that `result` has and that are not None."""
    return msgspec.json.encode(_written(shape, result))


def _read(shape: Shape, sent: Any) -> Any:
    reader = _READERS.get(shape.type_name)
    return reader(shape, sent) if reader else _string(shape, sent)


def _structure(shape: Shape, sent: Any) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise Malformed("an object is expected here")
    if shape.is_document_type:
        return sent
    members = {}
    for name, member in shape.members.items():
        value = sent.get(member.serialization.get("name", name))
        if value is not None:
            members[name] = _inside(name, member, value)
    return members


def _list(shape: Shape, sent: Any) -> list[Any]:
    if not isinstance(sent, list):
        raise Malformed("a list is expected here")
    return [_inside(str(place), shape.member, value) for place, value in enumerate(sent, 1)]


def _map(shape: Shape, sent: Any) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise Malformed("an object is expected here")
    return {key: _inside(key[:64], shape.value, value) for key, value in sent.items()}


def _inside(name: str, shape: Shape, sent: Any) -> Any:
    try:
        return _read(shape, sent)
    except Malformed as error:
        why, *above = error.args
        raise Malformed(why, name, *above) from None


def _string(_: Shape, sent: Any) -> str:
    if not isinstance(sent, str):
        raise Malformed("a string is expected here")
    return sent


_READERS: dict[str, Callable[[Shape, Any], Any]] = {
    "structure": _structure,
    "list": _list,
    "map": _map,
    "integer": lambda shape, sent: values.integer(_no_text(sent), shape.type_name),
    "long": lambda shape, sent: values.integer(_no_text(sent), shape.type_name),
    "float": lambda _, sent: values.number(sent),
    "double": lambda _, sent: values.number(sent),
    "boolean": lambda _, sent: values.boolean(_no_text(sent)),
    "blob": lambda _, sent: values.blob(sent),
    "timestamp": lambda _, sent: values.timestamp(sent),
}


def _no_text(sent: Any) -> Any:
    if isinstance(sent, str):
        raise Malformed(f"a string ('{sent[:64]}') is not expected here")
    return sent


def _written(shape: Shape, value: Any) -> Any:
    writer = _WRITERS.get(shape.type_name)
    return writer(shape, value) if writer else value


def _write_structure(shape: Shape, value: Any) -> dict[str, Any]:
    written = {}
    for name, member in shape.members.items():
        inner = value.get(name)
        if inner is not None:
            written[member.serialization.get("name", name)] = _written(member, inner)
    return written


def _write_map(shape: Shape, value: Any) -> dict[str, Any]:
    return {key: _written(shape.value, inner) for key, inner in value.items() if inner is not None}


def _write_date(_: Shape, value: datetime | float) -> float:
    """Seconds since the epoch, to the millisecond as AWS has them."""
    return round(values.as_utc(value).timestamp(), 3)


def _write_number(_: Shape, value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


_WRITERS: dict[str, Callable[[Shape, Any], Any]] = {
    "structure": _write_structure,
    "list": lambda shape, value: [_written(shape.member, item) for item in value],
    "map": _write_map,
    "timestamp": _write_date,
    "float": _write_number,
    "double": _write_number,
    "blob": lambda _, value: base64.b64encode(value).decode(),
}
