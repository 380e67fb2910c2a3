"""Lists multipart uploads and their parts."""

import msgspec

from sagehen.services.s3.acl import initiator_element, owner_element
from sagehen.services.s3.http.checksums import element_name
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.http.xml import document, element, iso_time, text
from sagehen.services.s3.listings import Encode, name_encoder, read_int, read_limit
from sagehen.services.s3.multipart import get_upload
from sagehen.services.s3.storage.listing import common_prefix
from sagehen.services.s3.storage.records import Blob, Upload, UploadListing
from sagehen.wire.http import Response

__all__ = ["list_multipart_uploads", "list_parts"]


async def list_parts(exchange: S3Exchange) -> Response:
    upload = await get_upload(exchange)
    limit = read_limit(exchange, "max-parts")
    value = exchange.query.get("part-number-marker") or "0"
    marker = read_int("part-number-marker", value)
    listed = await exchange.run(lambda: exchange.store.uploads.parts(upload, marker, limit + 1))
    parts = listed[:limit]
    truncated = len(listed) > limit
    account = exchange.call.settings.account_id
    algorithm = upload.algorithm
    inner = [
        text("Bucket", upload.bucket),
        text("Key", upload.key),
        text("UploadId", upload.upload_id),
        initiator_element(account),
        owner_element(account),
        text("StorageClass", upload.attributes.storage_class),
        text("PartNumberMarker", marker),
        text("NextPartNumberMarker", parts[-1].number if parts else 0),
        text("MaxParts", limit),
        text("IsTruncated", "true" if truncated else "false"),
        text("ChecksumAlgorithm", algorithm.upper()) if algorithm else "",
        text("ChecksumType", upload.kind.value) if algorithm else "",
        *(_part(part, algorithm) for part in parts),
    ]
    return Response(200, {"content-type": "application/xml"}, document("ListPartsResult", inner))


async def list_multipart_uploads(exchange: S3Exchange) -> Response:
    query = exchange.query
    limit = read_limit(exchange, "max-uploads")
    encode = name_encoder(exchange)
    after = query.get("key-marker", ""), query.get("upload-id-marker", "")
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    page = await exchange.run(lambda: _page(exchange, prefix, delimiter, after, limit))
    account = exchange.call.settings.account_id
    prefixes = [element("CommonPrefixes", text("Prefix", encode(p))) for p in page.common_prefixes]
    inner = [
        text("Bucket", exchange.bucket),
        text("KeyMarker", encode(after[0])),
        text("UploadIdMarker", after[1]),
        text("NextKeyMarker", encode(page.last_key)) if page.last_key else "",
        text("NextUploadIdMarker", page.last_upload_id) if page.last_key else "",
        text("Prefix", encode(prefix)),
        text("Delimiter", encode(delimiter)) if delimiter else "",
        text("EncodingType", "url") if "encoding-type" in query else "",
        text("MaxUploads", limit),
        text("IsTruncated", "true" if page.truncated else "false"),
        *(_upload(upload, encode, account) for upload in page.uploads),
        *prefixes,
    ]
    body = document("ListMultipartUploadsResult", inner)
    return Response(200, {"content-type": "application/xml"}, body)


def _page(
    exchange: S3Exchange, prefix: str, delimiter: str, after: tuple[str, str], limit: int
) -> UploadListing:
    """Blocks. Uploads are few, so those folded into a prefix are skipped one by one."""
    page = UploadListing(uploads=[], common_prefixes=[])
    last = after

    def listing(truncated: bool) -> UploadListing:
        last_key, last_upload_id = last if page.uploads or page.common_prefixes else ("", "")
        return msgspec.structs.replace(
            page, last_key=last_key, last_upload_id=last_upload_id, truncated=truncated
        )

    while True:
        batch = exchange.store.uploads.list_page(exchange.bucket, prefix, after, limit + 1)
        for upload in batch:
            common = common_prefix(upload.key, prefix, delimiter)
            after = upload.key, upload.upload_id
            if common is not None and (common in page.common_prefixes or common <= last[0]):
                continue
            if len(page.uploads) + len(page.common_prefixes) == limit:
                return listing(truncated=limit > 0)
            if common is None:
                page.uploads.append(upload)
                last = after
            else:
                page.common_prefixes.append(common)
                last = common, ""
        if len(batch) <= limit:
            return listing(truncated=False)


def _upload(upload: Upload, encode: Encode, account: str) -> str:
    return element(
        "Upload",
        text("Key", encode(upload.key)),
        text("UploadId", upload.upload_id),
        initiator_element(account),
        owner_element(account),
        text("StorageClass", upload.attributes.storage_class),
        text("Initiated", iso_time(upload.started_at)),
        text("ChecksumAlgorithm", upload.algorithm.upper()) if upload.algorithm else "",
        text("ChecksumType", upload.kind.value) if upload.algorithm else "",
    )


def _part(part: Blob, algorithm: str | None) -> str:
    checksum = ""
    if algorithm and part.checksum:
        checksum = text(element_name(algorithm), part.checksum)
    return element(
        "Part",
        text("PartNumber", part.number),
        text("LastModified", iso_time(part.modified_at)),
        text("ETag", f'"{part.etag}"'),
        text("Size", part.size),
        checksum,
    )
