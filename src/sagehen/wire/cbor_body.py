"""Reads and writes the CBOR bodies of Smithy's RPC v2."""

from datetime import datetime
from typing import Any

import cbor2

from sagehen.wire import values
from sagehen.wire.bodies import Scalars, read_tree, written_tree
from sagehen.wire.services import Shape
from sagehen.wire.values import MalformedValue

__all__ = ["encode_cbor", "read_cbor", "write_cbor"]

_DEEPEST = 64
_EPOCH_TAG = 1


def read_cbor(shape: Shape, body: bytes) -> dict[str, Any]:
    """Raises MalformedValue."""
    if not body:
        return {}
    try:
        sent = cbor2.loads(body, max_depth=_DEEPEST, strict_hashable_types=True)
    except (cbor2.CBORDecodeError, ValueError, OverflowError) as error:
        raise MalformedValue(f"the body is not valid CBOR: {str(error)[:256]}") from None
    return read_tree(shape, sent, _READERS)


def write_cbor(shape: Shape, result: Any) -> bytes:
    return encode_cbor(written_tree(shape, result, _WRITERS))


def encode_cbor(tree: Any) -> bytes:
    return cbor2.dumps(tree)


def _of(kind: type | tuple[type, ...], sent: Any) -> Any:
    if not isinstance(sent, kind) or (isinstance(sent, bool) and kind is not bool):
        raise MalformedValue(f"a value of type {type(sent).__name__} is not expected here")
    return sent


def _read_date(_: Shape, sent: Any) -> datetime:
    if isinstance(sent, datetime):  # cbor2's form of a tagged number
        return values.as_utc(sent)
    return values.timestamp(_of((int, float), sent))


_READERS: Scalars = {
    "integer": lambda shape, sent: values.integer(_of(int, sent), shape.type_name),
    "long": lambda shape, sent: values.integer(_of(int, sent), shape.type_name),
    "float": lambda _, sent: values.number(_of((int, float), sent)),
    "double": lambda _, sent: values.number(_of((int, float), sent)),
    "boolean": lambda _, sent: bool(_of(bool, sent)),
    "blob": lambda _, sent: bytes(_of(bytes, sent)),
    "timestamp": _read_date,
}


def _write_date(_: Shape, value: datetime | float) -> cbor2.CBORTag:
    """Rounds to milliseconds, as AWS does."""
    return cbor2.CBORTag(_EPOCH_TAG, round(values.as_utc(value).timestamp(), 3))


_WRITERS: Scalars = {
    "timestamp": _write_date,
    "float": lambda _, value: float(value),
    "double": lambda _, value: float(value),
}
