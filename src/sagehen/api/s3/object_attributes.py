"""GetObjectAttributes: what is known of an object, each fact only where it is asked for."""

from collections.abc import Sequence
from email.utils import formatdate

from sagehen.api.s3.attributes import refuse_encryption
from sagehen.api.s3.checksums import element_name
from sagehen.api.s3.exchange import Exchange
from sagehen.api.s3.faults import invalid_argument, invalid_request
from sagehen.api.s3.listings import MOST_NAMES, read_int
from sagehen.api.s3.xml import document, element, text
from sagehen.domain.objects import Blob, Checksum, ObjectInfo
from sagehen.wire.http import Response

__all__ = ["get_object_attributes"]

_HEADER = "x-amz-object-attributes"
_KNOWN = ("ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize")


async def get_object_attributes(exchange: Exchange) -> Response:
    refuse_encryption(exchange.headers)
    wanted = _read_wanted(exchange)
    limit = min(_number(exchange, "x-amz-max-parts", MOST_NAMES), MOST_NAMES)
    marker = _number(exchange, "x-amz-part-number-marker", 0)

    def look() -> tuple[ObjectInfo, Sequence[Blob]]:
        if "ObjectParts" not in wanted:
            return exchange.store.head(exchange.bucket, exchange.key), ()
        with exchange.store.open(exchange.bucket, exchange.key) as found:
            return found.info, found.parts

    info, parts = await exchange.run(look)
    came_in_parts = bool(parts) and "-" in info.etag
    facts = {
        "ETag": text("ETag", info.etag),
        "Checksum": _checksum(info.checksum) if info.checksum else "",
        "ObjectParts": _parts(parts, info.checksum, marker, limit) if came_in_parts else "",
        "StorageClass": text("StorageClass", info.attributes.storage_class),
        "ObjectSize": text("ObjectSize", info.size),
    }
    body = document(
        "GetObjectAttributesResponse", [facts[name] for name in _KNOWN if name in wanted]
    )
    modified = formatdate(info.modified_at, usegmt=True)
    return Response(200, {"content-type": "application/xml", "last-modified": modified}, body)


def _read_wanted(exchange: Exchange) -> set[str]:
    given = exchange.headers.get(_HEADER, "")
    wanted = {name.strip() for name in given.split(",") if name.strip()}
    if not wanted:
        raise invalid_request(
            f"The {_HEADER} header specifying the attributes to be retrieved is either missing or "
            "empty"
        )
    if not wanted <= {*_KNOWN}:
        raise invalid_argument("Invalid attribute name specified.", _HEADER, given)
    return wanted


def _number(exchange: Exchange, name: str, otherwise: int) -> int:
    given = exchange.headers.get(name)
    return otherwise if given is None else read_int(name, given)


def _checksum(checksum: Checksum) -> str:
    # Without the number of parts, which a composite one has elsewhere.
    value = text(element_name(checksum.algorithm), checksum.value.partition("-")[0])
    return element("Checksum", value, text("ChecksumType", checksum.kind.value))


def _parts(parts: Sequence[Blob], checksum: Checksum | None, marker: int, limit: int) -> str:
    """How many parts there are; what is known of each only where they have checksums, as in S3."""
    count = text("PartsCount", len(parts))
    if checksum is None or not all(part.checksum for part in parts):
        return element("ObjectParts", count)
    behind = [part for part in parts if part.number > marker]
    page = behind[:limit]
    return element(
        "ObjectParts",
        count,
        text("PartNumberMarker", marker),
        text("NextPartNumberMarker", page[-1].number if page else 0),
        text("MaxParts", limit),
        text("IsTruncated", "true" if len(behind) > len(page) else "false"),
        *(_part(part, checksum.algorithm) for part in page),
    )


def _part(part: Blob, algorithm: str) -> str:
    return element(
        "Part",
        text("PartNumber", part.number),
        text("Size", part.size),
        text(element_name(algorithm), part.checksum or ""),
    )
