"""Reads members of botocore's shapes from any format; each format is a subclass of Reader."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from sagehen.wire import values
from sagehen.wire.services import Shape
from sagehen.wire.values import MalformedValue

__all__ = ["Reader", "body_members", "read_text", "wire_name"]

Node = TypeVar("Node")
"""a part of the request, e.g. a JSON value or an XML element"""


class Reader(ABC, Generic[Node]):
    """Walks a request by its shape. A format says how it writes structures, lists, maps and
    scalars, and leaves out members that were not sent.

    Raises MalformedValue with the path of the value, e.g. `("why", "Tags", "1", "Key")`.
    """

    def read(self, shape: Shape, node: Node) -> Any:
        container = _CONTAINERS.get(shape.type_name)
        return container(self, shape, node) if container else self.scalar(shape, node)

    def structure(self, shape: Shape, node: Node) -> dict[str, Any]:
        params = {}
        sent = self.members(shape, node)
        try:
            for name, member, value in sent:
                params[name] = self.read(member, value)
        except MalformedValue as error:
            raise error.inside(name) from None
        return params

    def _list(self, shape: Shape, node: Node) -> list[Any]:
        params: list[Any] = []
        items, member = self.items(shape, node), shape.member
        try:
            for item in items:
                params.append(self.read(member, item))
        except MalformedValue as error:
            raise error.inside(str(len(params) + 1)) from None
        return params

    def _map(self, shape: Shape, node: Node) -> dict[str, Any]:
        params = {}
        entries, member = self.entries(shape, node), shape.value
        try:
            for key, value in entries:
                params[key] = self.read(member, value)
        except MalformedValue as error:
            raise error.inside(key[:64]) from None
        return params

    # The next three raise at once, not while their results are iterated over: then an error is
    # that of a value.

    @abstractmethod
    def members(self, shape: Shape, node: Node) -> Iterable[tuple[str, Shape, Node]]:
        """Returns the members sent, by botocore's names."""

    @abstractmethod
    def items(self, shape: Shape, node: Node) -> Iterable[Node]: ...

    @abstractmethod
    def entries(self, shape: Shape, node: Node) -> Iterable[tuple[str, Node]]: ...

    @abstractmethod
    def scalar(self, shape: Shape, node: Node) -> Any: ...


_CONTAINERS: Mapping[str, Callable[..., Any]] = {
    "structure": Reader.structure,
    "list": Reader._list,
    "map": Reader._map,
}


@functools.cache
def body_members(shape: Shape) -> tuple[tuple[str, str, Shape], ...]:
    """Returns name, name on the wire, and shape of the members that a body holds: all but those in
    headers, path and query."""
    return tuple(
        (name, wire_name(member, name), member)
        for name, member in shape.members.items()
        if "location" not in member.serialization
    )


def wire_name(shape: Shape, default: str) -> str:
    name: str = shape.serialization.get("name", default)
    return name


def read_text(shape: Shape, text: str) -> Any:
    """Reads a scalar that is written as text, as in XML, headers, paths and queries."""
    kind = shape.type_name
    if kind in ("integer", "long"):
        return values.integer(text, kind)
    reader = _TEXT_READERS.get(kind)
    return reader(text) if reader else text


_TEXT_READERS: Mapping[str, Any] = {
    "float": values.number,
    "double": values.number,
    "boolean": values.boolean,
    "blob": values.blob,
    "timestamp": values.timestamp,
}
