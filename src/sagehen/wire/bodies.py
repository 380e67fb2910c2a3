"""Reads and writes bodies in JSON and CBOR."""

import base64
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import cbor2
import msgspec

from sagehen.wire import values
from sagehen.wire.services import Shape
from sagehen.wire.values import MalformedValue, UnknownMember
from sagehen.wire.walk import Reader, body_members

__all__ = ["encode_cbor", "read_cbor", "read_json", "write_cbor", "write_json"]

_MAX_DEPTH = 64
_EPOCH_TAG = 1

_Scalars = Mapping[str, Callable[[Shape, Any], Any]]
"""functions for scalars by type name; other types are strings"""


def read_json(shape: Shape, body: bytes) -> dict[str, Any]:
    """Raises MalformedValue, and UnknownMember for members not in the shape."""
    if not body:
        return {}
    try:
        tree = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedValue(f"the body is not valid JSON: {error}") from None
    return _JSON.structure(shape, tree)


def write_json(shape: Shape, result: Any) -> bytes:
    return msgspec.json.encode(_tree(shape, result, _JSON_WRITERS))


def _refuse_tag(_: Any) -> Any:
    raise ValueError("the tag is not allowed")


_REFUSED_TAGS = dict.fromkeys((4, 5, 25, 29, 30, 35, 36, 37, 258, 260, 261, 43000), _refuse_tag)
"""Tags that no AWS API uses, but cbor2 decodes. By references (25, 29), a small body would stand
for a huge one, as each is read anew; others take long to decode, e.g. regular expressions."""


def read_cbor(shape: Shape, body: bytes) -> dict[str, Any]:
    """Raises MalformedValue, and UnknownMember for members not in the shape."""
    if not body:
        return {}
    try:
        tree = cbor2.loads(
            body,
            max_depth=_MAX_DEPTH,
            strict_hashable_types=True,
            semantic_decoders=_REFUSED_TAGS,
        )
    except (cbor2.CBORDecodeError, ValueError, OverflowError) as error:
        raise MalformedValue(f"the body is not valid CBOR: {str(error)[:256]}") from None
    return _CBOR.structure(shape, tree)


def write_cbor(shape: Shape, result: Any) -> bytes:
    return encode_cbor(_tree(shape, result, _CBOR_WRITERS))


def encode_cbor(tree: Any) -> bytes:
    return cbor2.dumps(tree)


class _TreeReader(Reader[Any]):
    """Reads decoded JSON or CBOR; null is the same as absent."""

    def __init__(self, scalars: _Scalars) -> None:
        self._scalars = scalars

    def members(self, shape: Shape, node: Any) -> Iterable[tuple[str, Shape, Any]]:
        if not isinstance(node, dict):
            raise MalformedValue("an object is expected here")
        sent = [
            (name, member, value)
            for name, key, member in body_members(shape)
            if (value := node.get(key)) is not None
        ]
        if len(sent) < len(node):
            _refuse_unknown(shape, node)
        return sent

    def items(self, shape: Shape, node: Any) -> Iterable[Any]:
        if not isinstance(node, list):
            raise MalformedValue("a list is expected here")
        return node

    def entries(self, shape: Shape, node: Any) -> Iterable[tuple[str, Any]]:
        if not isinstance(node, dict):
            raise MalformedValue("an object is expected here")
        return [(_string(shape.key, key), value) for key, value in node.items()]

    def scalar(self, shape: Shape, node: Any) -> Any:
        read: Callable[[Shape, Any], Any] = self._scalars.get(shape.type_name, _string)
        return read(shape, node)


def _refuse_unknown(shape: Shape, node: dict[Any, Any]) -> None:
    known = {key for _, key, _ in body_members(shape)} | {_TYPE}
    for key, value in node.items():
        if value is not None and key not in known:
            raise UnknownMember("", str(key)[:128])


_TYPE = "__type"
"""the name of a structure's shape, which AWS's JSON protocols allow everywhere"""


def _string(_: Shape, node: Any) -> str:
    if not isinstance(node, str):
        raise MalformedValue("a string is expected here")
    return node


def _not_a_string(node: Any) -> Any:
    if isinstance(node, str):
        raise MalformedValue(f"a string ('{node[:64]}') is not expected here")
    return node


_JSON = _TreeReader(
    {
        "integer": lambda shape, node: values.integer(_not_a_string(node), shape.type_name),
        "long": lambda shape, node: values.integer(_not_a_string(node), shape.type_name),
        "float": lambda _, node: values.number(node),
        "double": lambda _, node: values.number(node),
        "boolean": lambda _, node: values.boolean(_not_a_string(node)),
        "blob": lambda _, node: values.blob(node),
        "timestamp": lambda _, node: values.timestamp(node),
    }
)


def _of_type(kind: type | tuple[type, ...], node: Any) -> Any:
    if not isinstance(node, kind) or (isinstance(node, bool) and kind is not bool):
        raise MalformedValue(f"a value of type {type(node).__name__} is not expected here")
    return node


def _cbor_date(node: Any) -> datetime:
    # A datetime is cbor2's form of a tagged number.
    return values.timestamp(_of_type((int, float, datetime), node))


_CBOR = _TreeReader(
    {
        "integer": lambda shape, node: values.integer(_of_type(int, node), shape.type_name),
        "long": lambda shape, node: values.integer(_of_type(int, node), shape.type_name),
        "float": lambda _, node: values.number(_of_type((int, float), node)),
        "double": lambda _, node: values.number(_of_type((int, float), node)),
        "boolean": lambda _, node: bool(_of_type(bool, node)),
        "blob": lambda _, node: bytes(_of_type(bytes, node)),
        "timestamp": lambda _, node: _cbor_date(node),
    }
)


def _tree(shape: Shape, value: Any, scalars: _Scalars) -> Any:
    """Returns the members of `shape` that are not None, for the encoder."""
    kind = shape.type_name
    if kind == "structure":
        return _structure_tree(shape, value, scalars)
    if kind == "list":
        return _list_tree(shape.member, value, scalars)
    if kind == "map":
        present = [(key, inner) for key, inner in value.items() if inner is not None]
        return {key: _tree(shape.value, inner, scalars) for key, inner in present}
    writer = scalars.get(kind)
    return writer(shape, value) if writer else value


def _structure_tree(shape: Shape, value: Any, scalars: _Scalars) -> dict[str, Any]:
    tree = {}
    for name, key, member in body_members(shape):
        inner = value.get(name)
        if inner is not None:
            tree[key] = _tree(member, inner, scalars)
    return tree


def _list_tree(member: Shape, items: Iterable[Any], scalars: _Scalars) -> list[Any]:
    if writer := scalars.get(member.type_name):
        return [writer(member, item) for item in items]
    return [_tree(member, item, scalars) for item in items]


def _json_date(_: Shape, value: datetime | float) -> float:
    """Returns seconds since the epoch, rounded to milliseconds as AWS does."""
    return round(values.as_utc(value).timestamp(), 3)


def _cbor_epoch(shape: Shape, value: datetime | float) -> cbor2.CBORTag:
    return cbor2.CBORTag(_EPOCH_TAG, _json_date(shape, value))


def _json_number(_: Shape, value: float) -> float | str:
    return value if math.isfinite(value) else values.number_text(value)


_JSON_WRITERS: _Scalars = {
    "timestamp": _json_date,
    "float": _json_number,
    "double": _json_number,
    "blob": lambda _, value: base64.b64encode(value).decode(),
}

_CBOR_WRITERS: _Scalars = {
    "timestamp": _cbor_epoch,
    "float": lambda _, value: float(value),
    "double": lambda _, value: float(value),
}
