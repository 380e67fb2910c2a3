"""A JSON body as an operation's parameters, and an operation's result as a JSON body.

Our own and not moto's: that one takes a string for a list, drops the fraction of a number that
should be whole, reads a body that is not JSON as a message, and writes what is under an empty key
of a map into the structure around it.
"""

import base64
import math
from datetime import datetime
from typing import Any

import msgspec

from sagehen.wire import values
from sagehen.wire.bodies import Scalars, read_tree, written_tree
from sagehen.wire.services import Shape
from sagehen.wire.values import MalformedValue

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
        raise MalformedValue(f"the body is not valid JSON: {error}") from None
    return read_tree(shape, sent, _READERS)


def write_json(shape: Shape, result: Any) -> bytes:
    """The members of `shape` that `result` has and that are not None."""
    return msgspec.json.encode(written_tree(shape, result, _WRITERS))


_READERS: Scalars = {
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
        raise MalformedValue(f"a string ('{sent[:64]}') is not expected here")
    return sent


def _write_date(_: Shape, value: datetime | float) -> float:
    """Seconds since the epoch, to the millisecond as AWS has them."""
    return round(values.as_utc(value).timestamp(), 3)


def _write_number(_: Shape, value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


_WRITERS: Scalars = {
    "timestamp": _write_date,
    "float": _write_number,
    "double": _write_number,
    "blob": lambda _, value: base64.b64encode(value).decode(),
}
