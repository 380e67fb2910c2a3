"""Reads and writes S3's XML, its timestamps and its version ids."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from sagehen.services.s3.errors import invalid_argument, malformed_xml
from sagehen.wire.errors import AwsError
from sagehen.wire.values import MalformedValue
from sagehen.wire.xml import local_name, read_document

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
    ord("\r"): "&#xd;",
    # No XML 1.0 document can hold these: clients that need such keys ask for encoding-type=url.
    **dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], "\ufffd"),
}


def text(name: str, value: str | int) -> str:
    return f"<{name}>{str(value).translate(_ESCAPES)}</{name}>"


def element(name: str, *inner: str) -> str:
    return f"<{name}>{''.join(inner)}</{name}>"


def document(name: str, inner: Iterable[str]) -> bytes:
    body = "".join(inner)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<{name} xmlns="{NAMESPACE}">{body}</{name}>'.encode()


def parse(data: bytes, root: str) -> Element:
    """Raises AwsError MalformedXML, also for another root."""
    try:
        root_element = read_document(data)
    except MalformedValue as error:
        raise malformed_xml() from error
    if local_name(root_element.tag) != root:
        raise malformed_xml()
    return root_element


def children(parent: Element, name: str) -> list[Element]:
    """Returns direct children of that name, in any namespace."""
    return [child for child in parent if local_name(child.tag) == name]


def child_text(parent: Element, name: str) -> str | None:
    for child in children(parent, name):
        return child.text or ""
    return None


def iso_time(seconds: float) -> str:
    """Returns whole seconds, to agree with Last-Modified."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


NULL_VERSION = "null"

_VERSION_ID = re.compile(r"[A-Za-z0-9._+/=-]{32,1024}")
"""S3's ids have 32 characters today, and about 64 in earlier years."""


def check_version(query: Mapping[str, str], key: str) -> None:
    """Raises AwsError unless the version is `null`, the only one."""
    version_id = query.get("versionId", NULL_VERSION)
    if version_id == NULL_VERSION:
        return
    if not version_id:
        raise invalid_argument("Version id cannot be the empty string", "versionId", version_id)
    if not _VERSION_ID.fullmatch(version_id):
        raise invalid_argument("Invalid version id specified", "versionId", version_id)
    raise AwsError(
        "NoSuchVersion", "The specified version does not exist.", 404, Key=key, VersionId=version_id
    )
