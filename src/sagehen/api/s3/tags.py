"""The tags of objects: their rules, and the operations on them."""

from collections.abc import Iterable
from xml.etree import ElementTree

from sagehen.api.s3.body import read_document
from sagehen.api.s3.exchange import Exchange
from sagehen.api.s3.faults import malformed_xml
from sagehen.api.s3.xml import child_text, children, document, element, parse, text
from sagehen.wire.faults import AwsError
from sagehen.wire.http import Response

__all__ = ["check_tags", "delete_object_tagging", "get_object_tagging", "put_object_tagging"]

_MOST_TAGS = 10
_MOST_KEY_CHARACTERS = 128
_MOST_VALUE_CHARACTERS = 256


def check_tags(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The tags as a mapping.

    Raises:
        AwsError: there are too many, one is too long, or two have the same key.
    """
    tags: dict[str, str] = {}
    for key, value in pairs:
        if not 0 < len(key) <= _MOST_KEY_CHARACTERS or key.lower().startswith("aws:"):
            raise AwsError("InvalidTag", "The TagKey you have provided is invalid", 400, TagKey=key)
        if len(value) > _MOST_VALUE_CHARACTERS:
            raise AwsError(
                "InvalidTag", "The TagValue you have provided is invalid", 400, TagKey=key
            )
        if key in tags:
            raise AwsError(
                "InvalidTag", "Cannot provide multiple Tags with the same key", 400, TagKey=key
            )
        tags[key] = value
    if len(tags) > _MOST_TAGS:
        raise AwsError("BadRequest", "Object tags cannot be greater than 10", 400)
    return tags


async def get_object_tagging(exchange: Exchange) -> Response:
    info = await exchange.run(lambda: exchange.store.head(exchange.bucket, exchange.key))
    tags = info.attributes.tags
    inner = [element("Tag", text("Key", key), text("Value", tags[key])) for key in tags]
    body = document("Tagging", [element("TagSet", *inner)])
    return Response(200, {"content-type": "application/xml"}, body)


async def put_object_tagging(exchange: Exchange) -> Response:
    tags = _read(parse(await read_document(exchange), "Tagging"))
    await exchange.run(lambda: exchange.store.set_tags(exchange.bucket, exchange.key, tags))
    return Response(200)


async def delete_object_tagging(exchange: Exchange) -> Response:
    await exchange.run(lambda: exchange.store.set_tags(exchange.bucket, exchange.key, {}))
    return Response(204)


def _read(root: ElementTree.Element) -> dict[str, str]:
    sets = children(root, "TagSet")
    if len(sets) != 1:
        raise malformed_xml()
    pairs = []
    for tag in children(sets[0], "Tag"):
        key, value = child_text(tag, "Key"), child_text(tag, "Value")
        if key is None or value is None:
            raise malformed_xml()
        pairs.append((key, value))
    return check_tags(pairs)
