"""Reads and writes XML by botocore's shapes, for the REST-XML and Query protocols."""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape, quoteattr

from sagehen.wire import values
from sagehen.wire.services import Shape
from sagehen.wire.values import MalformedValue
from sagehen.wire.walk import Reader, body_members, read_text, wire_name

__all__ = [
    "XmlWriter",
    "document",
    "escape_controls",
    "local_name",
    "read_document",
    "read_xml",
    "simple_element",
]

_MAX_DEPTH = 64
"""elements inside one another; S3's deepest document has 9"""


class _SafeBuilder(ElementTree.TreeBuilder):
    """Refuses document types, which could define entities, and deep nesting."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise MalformedValue("a document type is not allowed")

    def start(self, tag: Any, attrs: Any, /) -> Element:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise MalformedValue("the body is nested too deeply")
        return super().start(tag, attrs)

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def read_document(body: bytes) -> Element:
    """Returns the root. Raises MalformedValue, also for documents with a document type."""
    parser = ElementTree.XMLParser(target=_SafeBuilder())
    try:
        parser.feed(body)
        root: Element = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise MalformedValue(f"the body is not valid XML: {str(error)[:256]}") from None
    return root


def local_name(name: str) -> str:
    """Drops the namespace: clients send S3's, none, or that of an older version."""
    return name.rpartition("}")[2]


def read_xml(shape: Shape, body: bytes, root_name: str) -> dict[str, Any]:
    """Ignores elements not in the shape, and namespaces. Raises MalformedValue."""
    root = read_document(body)
    if local_name(root.tag) != root_name:
        name = local_name(root.tag)[:64]
        raise MalformedValue(f"the root element is '{name}', but must be '{root_name}'")
    return _READER.structure(shape, root)


_Elements = Element | list[Element] | str
"""an element, all elements of a member's name, or an attribute's value"""


class _XmlReader(Reader[_Elements]):
    def members(self, shape: Shape, node: _Elements) -> Iterator[tuple[str, Shape, _Elements]]:
        return self._members(shape, _single(node))

    def _members(self, shape: Shape, node: Element) -> Iterator[tuple[str, Shape, _Elements]]:
        by_name: dict[str, list[Element]] = {}
        for child in node:
            by_name.setdefault(local_name(child.tag), []).append(child)
        for name, key, member in body_members(shape):
            if member.serialization.get("xmlAttribute"):
                value = _attribute(node, key)
                if value is not None:
                    yield name, member, value
            elif inner := by_name.get(key):
                yield name, member, inner

    def items(self, shape: Shape, node: _Elements) -> list[Element]:
        if _is_flattened(shape):
            return _several(node)
        return _children(_single(node), wire_name(shape.member, "member"))

    def entries(self, shape: Shape, node: _Elements) -> list[tuple[str, Element]]:
        names = wire_name(shape.key, "key"), wire_name(shape.value, "value")
        flattened = _is_flattened(shape)
        entries = _several(node) if flattened else _children(_single(node), "entry")
        return [_entry(element, *names) for element in entries]

    def scalar(self, shape: Shape, node: _Elements) -> Any:
        text = node if isinstance(node, str) else _text(_single(node))
        return read_text(shape, text if shape.type_name == "string" else text.strip())


_READER = _XmlReader()


def _is_flattened(shape: Shape) -> bool:
    return bool(shape.serialization.get("flattened"))


def _several(node: _Elements) -> list[Element]:
    assert not isinstance(node, str)
    return node if isinstance(node, list) else [node]


def _single(node: _Elements) -> Element:
    assert not isinstance(node, str)
    if isinstance(node, Element):
        return node
    if len(node) > 1:
        raise MalformedValue("the element comes more than once")
    return node[0]


def _children(parent: Element, name: str) -> list[Element]:
    for child in parent:
        if local_name(child.tag) != name:
            raise MalformedValue(f"the element '{local_name(child.tag)[:64]}' is not expected here")
    return list(parent)


def _entry(element: Element, key_name: str, value_name: str) -> tuple[str, Element]:
    parts = {local_name(child.tag): child for child in element}
    if len(element) != 2 or key_name not in parts or value_name not in parts:
        raise MalformedValue(f"an entry must hold one '{key_name}' and one '{value_name}'")
    return _text(parts[key_name]), parts[value_name]


def _attribute(element: Element, name: str) -> str | None:
    """The model names attributes with a prefix, e.g. `xsi:type`."""
    plain_name = name.rpartition(":")[2]
    for key, value in element.attrib.items():
        if local_name(key) == plain_name:
            return value
    return None


def _text(element: Element) -> str:
    if len(element):
        raise MalformedValue("text is expected here, and no elements")
    return element.text or ""


class XmlWriter:
    """Writes one document by shapes; None is left out at any depth."""

    def __init__(self, date_form: str) -> None:
        self._date_form = date_form
        self._parts: list[str] = []

    def text(self) -> str:
        return "".join(self._parts)

    def element(self, name: str, shape: Shape, value: Any) -> None:
        kind = shape.type_name
        if kind == "structure":
            self._structure(name, shape, value)
        elif kind == "list":
            self._list(name, shape, value)
        elif kind == "map":
            self._map(name, shape, value)
        else:
            self._parts.append(simple_element(name, self._scalar(shape, value)))

    def members(self, shape: Shape, value: Mapping[str, Any]) -> None:
        for name, key, member in body_members(shape):
            inner = value.get(name)
            if inner is not None and not member.serialization.get("xmlAttribute"):
                self.element(key, member, inner)

    def raw(self, xml: str) -> None:
        if xml:
            self._parts.append(xml)

    def open(self, name: str, attributes: str = "") -> int:
        """Returns what `close` needs."""
        self._parts.append(f"<{name}{attributes}>")
        return len(self._parts)

    def close(self, name: str, opened: int) -> None:
        if len(self._parts) == opened:
            self._parts[-1] = f"{self._parts[-1][:-1]}/>"
        else:
            self._parts.append(f"</{name}>")

    def _structure(self, name: str, shape: Shape, value: Mapping[str, Any]) -> None:
        opened = self.open(name, _attributes(shape, value))
        self.members(shape, value)
        self.close(name, opened)

    def _list(self, name: str, shape: Shape, value: Iterable[Any]) -> None:
        flattened = _is_flattened(shape)
        # Clients read a flattened list by its items' name, and send it by its own.
        item_name = wire_name(shape.member, name if flattened else "member")
        opened = None if flattened else self.open(name)
        for item in value:
            if item is not None:
                self.element(item_name, shape.member, item)
        if opened is not None:
            self.close(name, opened)

    def _map(self, name: str, shape: Shape, value: Mapping[str, Any]) -> None:
        flattened = _is_flattened(shape)
        key_name, value_name = wire_name(shape.key, "key"), wire_name(shape.value, "value")
        entry_name = name if flattened else "entry"
        opened = None if flattened else self.open(name)
        for key, inner in value.items():
            if inner is not None:
                entry = self.open(entry_name)
                self.element(key_name, shape.key, key)
                self.element(value_name, shape.value, inner)
                self.close(entry_name, entry)
        if opened is not None:
            self.close(name, opened)

    def _scalar(self, shape: Shape, value: Any) -> str:
        kind = shape.type_name
        if kind == "boolean":
            return "true" if value else "false"
        if kind in ("integer", "long"):
            return str(int(value))
        if kind in ("float", "double"):
            return values.number_text(value)
        if kind == "timestamp":
            form = shape.serialization.get("timestampFormat", self._date_form)
            return values.date_text(value, form)
        return base64.b64encode(value).decode() if kind == "blob" else str(value)


def _attributes(shape: Shape, value: Mapping[str, Any]) -> str:
    written = ""
    if namespace := shape.serialization.get("xmlNamespace"):
        prefix = namespace.get("prefix")
        name = f"xmlns:{prefix}" if prefix else "xmlns"
        written = f" {name}={quoteattr(namespace['uri'])}"
    for name, key, member in body_members(shape):
        if member.serialization.get("xmlAttribute") and value.get(name) is not None:
            written += f" {key}={quoteattr(str(value[name]))}"
    return written


def simple_element(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>" if text else f"<{name}/>"


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f]")


def escape_controls(xml: str) -> str:
    """Writes control characters as references. XML forbids most of them, but S3 sends them so;
    XML parsers read a bare carriage return as a line feed."""
    return _CONTROLS.sub(lambda match: f"&#x{ord(match[0]):x};", xml)


def document(body: str, declaration: str = "") -> bytes:
    return f"{declaration}{escape_controls(body)}".encode("utf-8", "replace")
