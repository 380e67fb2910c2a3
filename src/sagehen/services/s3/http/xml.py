"""The XML of S3, written and read.

Times as S3's documents write them.

Versions: there is one of each object, whose id is `null`.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from xml.etree import ElementTree

from sagehen.services.s3.errors import invalid_argument, malformed_xml
from sagehen.wire.errors import AwsError

__all__ = [
    "NAMESPACE",
    "NULL_VERSION",
    "check_version",
    "child_text",
    "children",
    "document",
    "element",
    "iso_time",
    "parse",
    "text",
]

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


def iso_time(seconds: float) -> str:
    """2026-11-01T09:30:00.000Z; whole seconds, so that it agrees with the Last-Modified header."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


NULL_VERSION = "null"

_VERSION_ID = re.compile(r"[A-Za-z0-9._+/=-]{32,1024}")
"""What S3's ids look like: 32 characters of late, 64 or so before."""


def check_version(query: Mapping[str, str], key: str) -> None:
    """Raises AwsError where a version is asked for that cannot be there."""
    given = query.get("versionId", NULL_VERSION)
    if given == NULL_VERSION:
        return
    if not given:
        raise invalid_argument("Version id cannot be the empty string", "versionId", given)
    if not _VERSION_ID.fullmatch(given):
        raise invalid_argument("Invalid version id specified", "versionId", given)
    raise AwsError(
        "NoSuchVersion", "The specified version does not exist.", 404, Key=key, VersionId=given
    )
