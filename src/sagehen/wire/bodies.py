"""Reads and writes bodies in JSON and CBOR.

Each format passes a table of functions for scalars by type name; other types are strings.
"""

from collections.abc import Callable, Mapping
from typing import Any

from sagehen.wire.services import Shape
from sagehen.wire.values import MalformedValue

__all__ = ["Scalars", "read_tree", "written_tree"]

Scalars = Mapping[str, Callable[[Shape, Any], Any]]


def read_tree(shape: Shape, sent: Any, scalars: Scalars) -> dict[str, Any]:
    """Ignores members not in the shape. Raises MalformedValue."""
    return _structure(shape, sent, scalars)


def written_tree(shape: Shape, result: Any, scalars: Scalars) -> Any:
    """Returns the members of `shape` that are not None."""
    kind = shape.type_name
    if kind == "structure":
        return _write_structure(shape, result, scalars)
    if kind == "list":
        return [written_tree(shape.member, item, scalars) for item in result]
    if kind == "map":
        given = [(key, inner) for key, inner in result.items() if inner is not None]
        return {key: written_tree(shape.value, inner, scalars) for key, inner in given}
    writer = scalars.get(kind)
    return writer(shape, result) if writer else result


def _read(shape: Shape, sent: Any, scalars: Scalars) -> Any:
    if container := _CONTAINERS.get(shape.type_name):
        return container(shape, sent, scalars)
    reader = scalars.get(shape.type_name)
    return reader(shape, sent) if reader else _string(sent)


def _structure(shape: Shape, sent: Any, scalars: Scalars) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise MalformedValue("an object is expected here")
    if shape.is_document_type:
        return sent
    members = {}
    for name, member in shape.members.items():
        value = sent.get(member.serialization.get("name", name))
        if value is not None:
            members[name] = _inside(name, member, value, scalars)
    return members


def _list(shape: Shape, sent: Any, scalars: Scalars) -> list[Any]:
    if not isinstance(sent, list):
        raise MalformedValue("a list is expected here")
    return [_inside(str(place), shape.member, one, scalars) for place, one in enumerate(sent, 1)]


def _map(shape: Shape, sent: Any, scalars: Scalars) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise MalformedValue("an object is expected here")
    read = {}
    for key, value in sent.items():
        read[_string(key)] = _inside(key[:64], shape.value, value, scalars)
    return read


_CONTAINERS: dict[str, Callable[[Shape, Any, Scalars], Any]] = {
    "structure": _structure,
    "list": _list,
    "map": _map,
}


def _inside(name: str, shape: Shape, sent: Any, scalars: Scalars) -> Any:
    try:
        return _read(shape, sent, scalars)
    except MalformedValue as error:
        why, *above = error.args
        raise MalformedValue(why, name, *above) from None


def _string(sent: Any) -> str:
    if not isinstance(sent, str):
        raise MalformedValue("a string is expected here")
    return sent


def _write_structure(shape: Shape, value: Any, scalars: Scalars) -> dict[str, Any]:
    written = {}
    for name, member in shape.members.items():
        inner = value.get(name)
        if inner is not None:
            written[member.serialization.get("name", name)] = written_tree(member, inner, scalars)
    return written
