"""Reads and writes S3's XML, its timestamps and its version ids."""

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
    # XML parsers read a bare carriage return as a line feed.
    **{code: f"&#x{code:x};" for code in range(32) if code not in (9, 10)},
}


def text(name: str, value: str | int) -> str:
    return f"<{name}>{str(value).translate(_ESCAPES)}</{name}>"


def element(name: str, *inner: str) -> str:
    return f"<{name}>{''.join(inner)}</{name}>"


def document(name: str, inner: Iterable[str]) -> bytes:
    body = "".join(inner)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<{name} xmlns="{NAMESPACE}">{body}</{name}>'.encode()


class _NoDoctype(ElementTree.TreeBuilder):
    """Refuses document types, which could define entities."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        raise malformed_xml()


def parse(data: bytes, root: str) -> ElementTree.Element:
    """Raises AwsError MalformedXML, also for another root."""
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
    """Returns direct children of that name, in any namespace."""
    return [child for child in parent if _local(child) == name]


def child_text(parent: ElementTree.Element, name: str) -> str | None:
    for child in children(parent, name):
        return child.text or ""
    return None


def _local(found: ElementTree.Element) -> str:
    return found.tag.rpartition("}")[2]


def iso_time(seconds: float) -> str:
    """Returns whole seconds, to agree with Last-Modified."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


NULL_VERSION = "null"

_VERSION_ID = re.compile(r"[A-Za-z0-9._+/=-]{32,1024}")
"""S3's ids have 32 characters today, and about 64 in earlier years."""


def check_version(query: Mapping[str, str], key: str) -> None:
    """Raises AwsError unless the version is `null`, the only one."""
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
