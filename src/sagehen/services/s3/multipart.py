"""Operations on multipart uploads."""

import re
from xml.etree.ElementTree import Element

from sagehen.frame.s3_client import OWNER_HEADER
from sagehen.services.s3.acl import written_acl
from sagehen.services.s3.copy import check_source, read_source
from sagehen.services.s3.errors import (
    invalid_argument,
    invalid_request,
    malformed_xml,
    speaking_s3,
)
from sagehen.services.s3.http.attributes import (
    encryption_headers,
    read_attributes,
    refuse_encryption,
)
from sagehen.services.s3.http.body import LARGEST_OBJECT_BYTES, plan_body, read_document, take
from sagehen.services.s3.http.checksums import (
    checksum_elements,
    element_name,
    read_algorithm,
    read_expected_checksum,
    read_object_checksum,
)
from sagehen.services.s3.http.conditions import read_range, read_write_condition
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.http.xml import child_text, children, document, iso_time, parse, text
from sagehen.services.s3.storage import ChosenPart, Completion, OpenObject
from sagehen.services.s3.storage.digests import DEFAULT_ALGORITHM, JOINABLE
from sagehen.services.s3.storage.errors import NoSuchUpload
from sagehen.services.s3.storage.records import (
    OWNER_CHARACTERS,
    Blob,
    ChecksumKind,
    ObjectInfo,
    Upload,
)
from sagehen.wire.http import Response

__all__ = [
    "abort_multipart_upload",
    "complete_multipart_upload",
    "create_multipart_upload",
    "get_upload",
    "upload_part",
    "upload_part_copy",
]

_MOST_PARTS = 10_000
_MOST_SIZE_DIGITS = 18
_COPIED_RANGE = re.compile(r"bytes=[0-9]+-[0-9]+")
_OWNER = re.compile(f"[0-9a-f]{{{OWNER_CHARACTERS}}}")
_XML = {"content-type": "application/xml"}


async def create_multipart_upload(exchange: S3Exchange) -> Response:
    headers = exchange.headers
    attributes = read_attributes(headers, await written_acl(exchange))
    algorithm = read_algorithm(headers)
    kind = _read_kind(headers.get("x-amz-checksum-type"), algorithm)
    owner = headers.get(OWNER_HEADER)
    if owner is not None and not _OWNER.fullmatch(owner):
        raise invalid_argument(
            f"{OWNER_HEADER} has {OWNER_CHARACTERS} hexadecimal digits.", OWNER_HEADER, owner
        )
    upload = await exchange.run(
        lambda: exchange.store.uploads.create(
            exchange.bucket, exchange.key, attributes, algorithm, kind, owner
        )
    )
    body = document(
        "InitiateMultipartUploadResult",
        [
            text("Bucket", exchange.bucket),
            text("Key", exchange.key),
            text("UploadId", upload.upload_id),
        ],
    )
    answer = {**_XML, **encryption_headers(attributes)}
    if algorithm:
        answer["x-amz-checksum-algorithm"] = algorithm.upper()
        answer["x-amz-checksum-type"] = kind.value
    return Response(200, answer, body)


async def upload_part(exchange: S3Exchange) -> Response:
    number = _read_number(exchange)
    refuse_encryption(exchange.headers)
    expected = read_expected_checksum(exchange.headers)
    upload = await get_upload(exchange)
    if expected and upload.algorithm and expected.algorithm != upload.algorithm:
        raise invalid_request(
            f"Checksum Type mismatch occurred, expected checksum Type: {upload.algorithm}, actual "
            f"checksum Type: {expected.algorithm}"
        )
    plan = plan_body(exchange, upload.algorithm or DEFAULT_ALGORITHM)
    part = await take(
        exchange, plan, lambda draft: exchange.store.uploads.put_part(upload, number, draft)
    )
    headers = {"etag": f'"{part.etag}"', **encryption_headers(upload.attributes)}
    if plan.expected and plan.sent_checksum:
        headers[plan.expected.header] = plan.sent_checksum
    elif upload.algorithm and part.checksum:
        headers[f"x-amz-checksum-{upload.algorithm}"] = part.checksum
    return Response(200, headers)


async def upload_part_copy(exchange: S3Exchange) -> Response:
    number = _read_number(exchange)
    bucket, key = read_source(exchange.headers)
    upload = await get_upload(exchange)

    def copy() -> Blob:
        with speaking_s3(bucket, key), exchange.store.open(bucket, key) as source:
            check_source(exchange, source.info)
            start, length = _read_copied_range(exchange, source.info)
            return _copy_part(exchange, upload, number, source, (start, length))

    part = await exchange.run(copy)
    inner = [text("LastModified", iso_time(part.modified_at)), text("ETag", f'"{part.etag}"')]
    if upload.algorithm and part.checksum:
        inner.append(text(element_name(upload.algorithm), part.checksum))
    headers = {**_XML, **encryption_headers(upload.attributes)}
    return Response(200, headers, document("CopyPartResult", inner))


async def complete_multipart_upload(exchange: S3Exchange) -> Response:
    # The checksum headers describe the object, not this document.
    data = await read_document(exchange, is_checked_later=True)
    completion = Completion(
        parts=_read_parts(parse(data, "CompleteMultipartUpload")) if data else [],
        checksum=read_object_checksum(exchange.headers),
        checksum_kind=exchange.headers.get("x-amz-checksum-type"),
        size=_read_object_size(exchange.headers.get("x-amz-mp-object-size")),
        condition=read_write_condition(exchange.headers),
    )

    def act() -> ObjectInfo:
        upload_id = exchange.query["uploadId"]
        try:
            upload = exchange.store.uploads.get(exchange.bucket, exchange.key, upload_id)
            if not completion.parts:
                raise invalid_request("You must specify at least one part")
            return exchange.store.complete(upload, completion)
        except NoSuchUpload:
            # The client may retry after losing the first response.
            return exchange.store.completed(exchange.bucket, exchange.key, upload_id)

    info = await exchange.run(act)
    host = exchange.headers.get("host", "")
    body = document(
        "CompleteMultipartUploadResult",
        [
            text("Location", f"http://{host}{exchange.request.raw_path}"),
            text("Bucket", exchange.bucket),
            text("Key", exchange.key),
            text("ETag", f'"{info.etag}"'),
            checksum_elements(info.checksum),
        ],
    )
    return Response(200, {**_XML, **encryption_headers(info.attributes)}, body)


async def abort_multipart_upload(exchange: S3Exchange) -> Response:
    def act() -> None:
        upload_id = exchange.query["uploadId"]
        try:
            upload = exchange.store.uploads.get(exchange.bucket, exchange.key, upload_id)
        except NoSuchUpload:
            # Clients that clean up may abort what they have completed.
            exchange.store.completed(exchange.bucket, exchange.key, upload_id)
            return
        exchange.store.uploads.abort(upload)

    await exchange.run(act)
    return Response(204)


async def get_upload(exchange: S3Exchange) -> Upload:
    """Raises AwsError NoSuchUpload."""
    upload_id = exchange.query["uploadId"]
    return await exchange.run(
        lambda: exchange.store.uploads.get(exchange.bucket, exchange.key, upload_id)
    )


def _copy_part(
    exchange: S3Exchange, upload: Upload, number: int, source: OpenObject, span: tuple[int, int]
) -> Blob:
    draft = exchange.store.draft(upload.algorithm or DEFAULT_ALGORITHM)
    try:
        for chunk in source.chunks(*span):
            draft.write(chunk)
        return exchange.store.uploads.put_part(upload, number, draft)
    except BaseException:
        draft.discard()
        raise


def _read_copied_range(exchange: S3Exchange, source: ObjectInfo) -> tuple[int, int]:
    name = "x-amz-copy-source-range"
    header = exchange.headers.get(name)
    if header is None:
        if source.size > LARGEST_OBJECT_BYTES:
            raise invalid_request(
                "The specified copy source is larger than the maximum allowable size for a copy "
                f"source: {LARGEST_OBJECT_BYTES}"
            )
        return 0, source.size
    span = read_range(header, source.size) if _COPIED_RANGE.fullmatch(header) else None
    last = header.rpartition("-")[2]
    if span is None or int(last) >= source.size:
        raise invalid_argument(
            f"Range specified is not valid for source object of size: {source.size}", name, header
        )
    return span


def _read_kind(value: str | None, algorithm: str | None) -> ChecksumKind:
    if value is None:
        sums = algorithm not in (None, "crc64nvme")
        return ChecksumKind.COMPOSITE if sums else ChecksumKind.FULL_OBJECT
    try:
        kind = ChecksumKind(value)
    except ValueError:
        raise invalid_request("Value for x-amz-checksum-type header is invalid.") from None
    if algorithm is None:
        raise invalid_request(
            "The x-amz-checksum-type header can only be used with the x-amz-checksum-algorithm "
            "header."
        )
    joins = algorithm in JOINABLE if kind is ChecksumKind.FULL_OBJECT else algorithm != "crc64nvme"
    if not joins:
        raise invalid_request(
            f"The {kind.value} checksum type cannot be used with the {algorithm} checksum "
            "algorithm."
        )
    return kind


def _read_number(exchange: S3Exchange) -> int:
    value = exchange.query.get("partNumber", "")
    number = int(value) if value.isascii() and value.isdigit() and len(value) < 6 else 0
    if not 0 < number <= _MOST_PARTS:
        raise invalid_argument(
            f"Part number must be an integer between 1 and {_MOST_PARTS}, inclusive",
            "partNumber",
            value,
        )
    return number


def _read_object_size(header: str | None) -> int | None:
    if header is None:
        return None
    if not header.isascii() or not header.isdigit() or len(header) > _MOST_SIZE_DIGITS:
        raise invalid_request("Value for x-amz-mp-object-size header is invalid.")
    return int(header)


def _read_parts(root: Element) -> list[ChosenPart]:
    parts = children(root, "Part")
    if not 0 < len(parts) <= _MOST_PARTS:
        raise malformed_xml()
    return [_read_part(part) for part in parts]


def _read_part(part: Element) -> ChosenPart:
    number, etag = child_text(part, "PartNumber"), child_text(part, "ETag")
    if not number or not number.isascii() or not number.isdigit() or len(number) > 5 or not etag:
        raise malformed_xml()
    values = [child.text for child in part if "Checksum" in child.tag]
    return ChosenPart(int(number), etag.strip().strip('"'), values[0] if values else None)
