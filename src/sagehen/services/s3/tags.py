"""Tags of objects and buckets: their rules, and the operations on objects' tags."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal
from xml.etree import ElementTree

from sagehen.services.s3.errors import malformed_xml
from sagehen.services.s3.http.body import read_document
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.http.xml import child_text, children, document, element, parse, text
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Response

__all__ = [
    "TAG_CHARACTERS",
    "check_tags",
    "delete_object_tagging",
    "get_object_tagging",
    "put_object_tagging",
    "read_tag_sets",
    "tag_elements",
    "tags_of",
]

Tagged = Literal["object", "bucket", "new bucket"]

TAG_CHARACTERS = re.compile(r"[\w\s+\-=.:/@]*")
_MOST_TAGS = {"object": 10, "bucket": 50, "new bucket": 50}
_MOST_KEY_CHARACTERS = 128
_MOST_VALUE_CHARACTERS = 256
_OF_THE_SYSTEM: Mapping[Tagged, str] = {
    "object": "Your TagKey cannot be prefixed with aws:",
    "bucket": "System tags cannot be added/updated by requester",
    "new bucket": 'User-defined tag keys can\'t start with "aws:". This prefix is reserved for '
    'system tags. Remove "aws:" from your tag keys and try again.',
}


def check_tags(pairs: Iterable[tuple[str, str]], tagged: Tagged = "object") -> dict[str, str]:
    """Raises AwsError for too many, too long or repeated tags."""
    tags: dict[str, str] = {}
    for key, value in pairs:
        if key.lower().startswith("aws:"):
            raise AwsError("InvalidTag", _OF_THE_SYSTEM[tagged], 400, TagKey=key)
        if not 0 < len(key) <= _MOST_KEY_CHARACTERS or not TAG_CHARACTERS.fullmatch(key):
            raise AwsError("InvalidTag", "The TagKey you have provided is invalid", 400, TagKey=key)
        if len(value) > _MOST_VALUE_CHARACTERS or not TAG_CHARACTERS.fullmatch(value):
            raise AwsError(
                "InvalidTag",
                "The TagValue you have provided is invalid",
                400,
                TagKey=key,
                TagValue=value,
            )
        if key in tags:
            raise AwsError(
                "InvalidTag", "Cannot provide multiple Tags with the same key", 400, TagKey=key
            )
        tags[key] = value
    if len(tags) > (most := _MOST_TAGS[tagged]):
        name = "Object" if tagged == "object" else "Bucket"
        raise AwsError("BadRequest", f"{name} tags cannot be greater than {most}", 400)
    return tags


def read_tag_sets(root: ElementTree.Element, tagged: Tagged = "object") -> dict[str, str]:
    """Raises AwsError."""
    sets = children(root, "TagSet")
    if len(sets) > 1:
        raise malformed_xml()
    return tags_of(sets[0], tagged) if sets else {}


def tags_of(parent: ElementTree.Element, tagged: Tagged) -> dict[str, str]:
    """Raises AwsError."""
    pairs = []
    for tag in children(parent, "Tag"):
        key, value = child_text(tag, "Key"), child_text(tag, "Value")
        if key is None or value is None:
            raise malformed_xml()
        pairs.append((key, value))
    return check_tags(pairs, tagged)


def tag_elements(tags: Mapping[str, str]) -> str:
    inner = [element("Tag", text("Key", key), text("Value", tags[key])) for key in tags]
    return element("TagSet", *inner)


async def get_object_tagging(exchange: S3Exchange) -> Response:
    info = await exchange.run(lambda: exchange.store.head(exchange.bucket, exchange.key))
    body = document("Tagging", [tag_elements(info.attributes.tags)])
    return Response(200, {"content-type": "application/xml"}, body)


async def put_object_tagging(exchange: S3Exchange) -> Response:
    tags = read_tag_sets(parse(await read_document(exchange), "Tagging"))
    await exchange.run(lambda: exchange.store.set_tags(exchange.bucket, exchange.key, tags))
    return Response(200)


async def delete_object_tagging(exchange: S3Exchange) -> Response:
    await exchange.run(lambda: exchange.store.set_tags(exchange.bucket, exchange.key, {}))
    return Response(204)
