"""The XML of S3, written and read."""

from collections.abc import Iterable
from xml.etree import ElementTree

from sagehen.api.s3.faults import malformed_xml

__all__ = ["NAMESPACE", "child_text", "children", "document", "element", "parse", "text"]

NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"

_ESCAPES = {
    ord("&"): "&amp;",
    ord("<"): "&lt;",
    ord(">"): "&gt;",
    ord('"'): "&quot;",
    # A bare carriage return would be read as a line feed.
    **{code: f"&#x{code:x};" for code in range(32) if code not in (9, 10)},
}


def text(name: str, value: str | int) -> str:
    """An element that holds text."""
    return f"<{name}>{str(value).translate(_ESCAPES)}</{name}>"


def element(name: str, *inner: str) -> str:
    """An element that holds elements; empty strings among them are nothing."""
    return f"<{name}>{''.join(inner)}</{name}>"


def document(name: str, inner: Iterable[str]) -> bytes:
    """A whole answer."""
    body = "".join(inner)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<{name} xmlns="{NAMESPACE}">{body}</{name}>'.encode()


class _NoDoctype(ElementTree.TreeBuilder):
    """A document type could define entities; no S3 client sends one."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise malformed_xml()


def parse(data: bytes, root: str) -> ElementTree.Element:
    """Read a request's document, whose outermost element has to be `root`.

    Raises:
        AwsError: MalformedXML.
    """
    parser = ElementTree.XMLParser(target=_NoDoctype())
    try:
        parser.feed(data)
        found: ElementTree.Element = parser.close()
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise malformed_xml() from error
    if _local(found) != root:
        raise malformed_xml()
    return found


def children(parent: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """The elements of that name right below, in whatever namespace."""
    return [child for child in parent if _local(child) == name]


def child_text(parent: ElementTree.Element, name: str) -> str | None:
    """The text of the first such element; None where there is none."""
    for child in children(parent, name):
        return child.text or ""
    return None


def _local(found: ElementTree.Element) -> str:
    return found.tag.rpartition("}")[2]
