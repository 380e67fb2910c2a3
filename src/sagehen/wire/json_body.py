"""Reads and writes JSON bodies.

moto's are not used: they take a string for a list, drop the fraction of a number meant to be whole,
read non-JSON as a message, and misplace values under a map's empty key.
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
    """Raises MalformedValue."""
    if not body:
        return {}
    try:
        sent = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedValue(f"the body is not valid JSON: {error}") from None
    return read_tree(shape, sent, _READERS)


def write_json(shape: Shape, result: Any) -> bytes:
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
    """Rounds to milliseconds, as AWS does."""
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
