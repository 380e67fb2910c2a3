"""Writing and deleting objects."""

from sagehen.api.s3.acl import written_acl
from sagehen.api.s3.attributes import read_attributes, written_headers
from sagehen.api.s3.body import SMALL_BYTES, plan_body, read_document, take
from sagehen.api.s3.conditions import read_write_condition
from sagehen.api.s3.exchange import Exchange
from sagehen.api.s3.faults import malformed_xml, not_implemented
from sagehen.api.s3.versions import NULL_VERSION
from sagehen.api.s3.xml import child_text, children, document, element, parse, text
from sagehen.wire.http import Response

__all__ = ["delete_object", "delete_objects", "put_object"]

_MOST_KEYS_TO_DELETE = 1000


async def put_object(exchange: Exchange) -> Response:
    attributes = read_attributes(exchange.headers, await written_acl(exchange))
    condition = read_write_condition(exchange.headers)
    plan = plan_body(exchange)
    if plan.size > SMALL_BYTES:
        # Better to refuse before the body than after it.
        await exchange.run(lambda: exchange.store.bucket(exchange.bucket))
    info = await take(
        exchange,
        plan,
        lambda draft: exchange.store.put(
            exchange.bucket, exchange.key, draft, attributes, condition
        ),
    )
    return Response(200, written_headers(info))


async def delete_object(exchange: Exchange) -> Response:
    condition = read_write_condition(exchange.headers)
    await exchange.run(lambda: exchange.store.delete(exchange.bucket, [exchange.key], condition))
    return Response(204)


def _no_such_version(key: str, version: str) -> str:
    return element(
        "Error",
        text("Key", key),
        text("VersionId", version),
        text("Code", "NoSuchVersion"),
        text("Message", "The specified version does not exist."),
    )


async def delete_objects(exchange: Exchange) -> Response:
    root = parse(await read_document(exchange), "Delete")
    named = children(root, "Object")
    if not 0 < len(named) <= _MOST_KEYS_TO_DELETE:
        raise malformed_xml()
    keys, refused = [], []
    for item in named:
        key = child_text(item, "Key")
        if not key:
            raise malformed_xml()
        for condition in ("ETag", "LastModifiedTime", "Size"):
            if children(item, condition):
                raise not_implemented(f"{condition} in DeleteObjects")
        version = child_text(item, "VersionId")
        if version in (None, "", NULL_VERSION):
            keys.append(key)
        else:
            refused.append(_no_such_version(key, version))
    await exchange.run(lambda: exchange.store.delete(exchange.bucket, keys))
    deleted = [element("Deleted", text("Key", key)) for key in keys]
    if (child_text(root, "Quiet") or "").strip().lower() == "true":
        deleted = []
    body = document("DeleteResult", [*deleted, *refused])
    return Response(200, {"content-type": "application/xml"}, body)
