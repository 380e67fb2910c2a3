"""Browser-based uploads: multipart/form-data with a signed policy becomes an object.

All fields are checked before a byte of the file is stored.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from sagehen.frame.context import RequestContext
from sagehen.services.s3.acl import check_expected_owner, written_acl
from sagehen.services.s3.errors import not_implemented
from sagehen.services.s3.forms.policy import Policy, read_policy
from sagehen.services.s3.forms.reader import FormReader
from sagehen.services.s3.http.attributes import (
    read_attributes,
    refuse_unknown,
    written_headers,
)
from sagehen.services.s3.http.body import LARGEST_OBJECT_BYTES
from sagehen.services.s3.http.checksums import ChecksumRequest, read_expected_checksum
from sagehen.services.s3.http.conditions import precondition_failed
from sagehen.services.s3.http.exchange import (
    BodyStream,
    S3Exchange,
    check_key,
    header_value,
    read_target,
)
from sagehen.services.s3.http.xml import element, parse, text
from sagehen.services.s3.storage.digests import DEFAULT_ALGORITHM
from sagehen.services.s3.storage.files import Draft
from sagehen.services.s3.storage.records import Attributes, ObjectInfo
from sagehen.services.s3.tags import read_tag_sets
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request, Response
from sagehen.wire.scope import Signing, signing_of
from sagehen.wire.serialize import HOST_ID, serialize_error
from sagehen.wire.services import service
from sagehen.wire.signatures.forms import missing_field, verify_form
from sagehen.wire.signatures.signing import UNSIGNED_PAYLOAD
from sagehen.wire.signatures.sigv4 import Identity, Verifier

__all__ = ["handle_form", "is_form"]

FIELDS_SECONDS = 20.0
"""limit for reading the fields, or the rest of a refused form: anyone may send these"""

_BATCH_BYTES = 2**20
_MOST_DRAINED_BYTES = 2**20
"""most bytes read of a refused form's rest, since a client that still sends would not read the
response"""

_BUCKET_PATH = re.compile(r"/[^/]+/?")
_FORM_TYPES = ("multipart/form-data", "application/x-www-form-urlencoded", "text/")
_FILENAME = "${filename}"
_OF_OBJECTS = (
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
)
_OF_SIGNATURES = tuple(
    f"x-amz-{name}" for name in ("algorithm", "credential", "date", "security-token", "signature")
)
_STATUSES = {"200": 200, "201": 201}
_TOO_SLOW = "RequestTimeout"


def is_form(request: Request) -> bool:
    """Also recognizes a form of the wrong type, which `handle_form` refuses."""
    return (
        request.method == "POST"
        and request.headers.get("content-type", "").lower().startswith(_FORM_TYPES)
        and signing_of(request) is Signing.NOWHERE
        and _BUCKET_PATH.fullmatch(request.raw_path) is not None
    )


async def handle_form(
    request: Request, stream: AsyncIterator[bytes], call: RequestContext, verifier: Verifier
) -> Response:
    """Handles a form whose signature is not yet checked."""
    try:
        response = await _answer(request, stream, call, verifier)
    except AwsError as error:
        response = serialize_error(service("s3"), None, error, call.request_id)
        if error.code == _TOO_SLOW or not await _drained(stream):
            response.headers["connection"] = "close"
    response.headers.setdefault("x-amz-request-id", call.request_id)
    response.headers.setdefault("x-amz-id-2", HOST_ID)
    return response


async def _answer(
    request: Request, stream: AsyncIterator[bytes], call: RequestContext, verifier: Verifier
) -> Response:
    if not request.headers["content-type"].lower().startswith(_FORM_TYPES[0]):
        raise precondition_failed(f"Bucket POST must be of the enclosure-type {_FORM_TYPES[0]}")
    reader = FormReader(request.headers["content-type"])
    upload: _Upload | None = None
    limit = asyncio.timeout(FIELDS_SECONDS)
    try:
        async with limit:
            async for data in stream:
                piece = reader.feed(data)
                if reader.has_file and upload is None:
                    limit.reschedule(None)
                    upload = await _begin(request, reader, call, verifier)
                if upload is not None and piece:
                    await upload.add(piece)
        reader.finish()
        if upload is None:
            raise AssertionError("A form that is whole has begun its file.")
        info = await upload.keep()
    except BaseException:
        if upload is not None:
            upload.draft.discard()
        elif limit.expired():
            raise AwsError(
                _TOO_SLOW,
                "Your socket connection to the server was not read from or written to within the "
                f"timeout period: a form's fields have to come within {FIELDS_SECONDS:g} seconds.",
                400,
            ) from None
        raise
    return _accepted(request, reader.fields, info)


async def _begin(
    request: Request, reader: FormReader, call: RequestContext, verifier: Verifier
) -> "_Upload":
    """Raises AwsError."""
    bucket, key_in_path, query = read_target(request)
    if key_in_path:  # as %2F, which `is_form` does not decode
        message = "The specified method is not allowed against this resource."
        raise AwsError("MethodNotAllowed", message, 405)
    fields = dict(reader.fields)
    if "key" not in fields:
        raise missing_field("key")
    access_key = verify_form(fields, verifier)
    if reader.filename is not None:
        name = re.split(r"[/\\]", reader.filename)[-1]
        fields["key"] = fields["key"].replace(_FILENAME, name)
    policy = read_policy(fields["policy"], LARGEST_OBJECT_BYTES)
    policy.check({**fields, "bucket": bucket}, reader.names, call.clock.now())
    if not fields["key"]:
        raise missing_field("key")
    check_key(fields["key"])
    headers = _headers(fields)
    refuse_unknown(headers)
    identity = Identity(access_key, "s3", verifier.region, UNSIGNED_PAYLOAD, "", "", b"", "")
    exchange = S3Exchange(
        replace(request, headers=headers),
        query,
        bucket,
        fields["key"],
        BodyStream(_nothing()),
        call,
        identity,
    )
    check_expected_owner(exchange)
    await exchange.run(lambda: exchange.store.bucket(bucket))
    attributes = read_attributes(headers, await written_acl(exchange))
    if "tagging" in fields:
        tags = read_tag_sets(parse(fields["tagging"].encode(), "Tagging"))
        attributes = msgspec.structs.replace(attributes, tags=tags)
    checksum = read_expected_checksum(headers)
    draft = await exchange.run(
        lambda: exchange.store.draft(checksum.algorithm if checksum else DEFAULT_ALGORITHM)
    )
    return _Upload(exchange, draft, attributes, policy, checksum)


class _Upload:
    def __init__(
        self,
        exchange: S3Exchange,
        draft: Draft,
        attributes: Attributes,
        policy: Policy,
        checksum: ChecksumRequest | None,
    ) -> None:
        self.draft = draft
        self._exchange = exchange
        self._attributes = attributes
        self._policy = policy
        self._checksum = checksum
        self._size = 0
        self._batch = bytearray()

    async def add(self, piece: bytes) -> None:
        """Raises AwsError EntityTooLarge."""
        self._size += len(piece)
        if self._size > self._policy.most_bytes:
            raise AwsError(
                "EntityTooLarge",
                "Your proposed upload exceeds the maximum allowed size",
                400,
                ProposedSize=self._size,
                MaxSizeAllowed=self._policy.most_bytes,
            )
        self._batch += piece
        if len(self._batch) >= _BATCH_BYTES:
            await self._write()

    async def keep(self) -> ObjectInfo:
        """Raises AwsError."""
        if self._size < self._policy.least_bytes:
            raise AwsError(
                "EntityTooSmall",
                "Your proposed upload is smaller than the minimum allowed size",
                400,
                ProposedSize=self._size,
                MinSizeAllowed=self._policy.least_bytes,
            )
        await self._write()
        if self._checksum is not None and self.draft.checksum != self._checksum.value:
            raise AwsError(
                "BadDigest",
                f"The {self._checksum.algorithm.upper()} you specified did not match the "
                "calculated checksum.",
                400,
            )
        exchange = self._exchange
        return await exchange.run(
            lambda: exchange.store.put(exchange.bucket, exchange.key, self.draft, self._attributes)
        )

    async def _write(self) -> None:
        batch, self._batch = bytes(self._batch), bytearray()
        await self._exchange.run(lambda: self.draft.write(batch))


def _headers(fields: Mapping[str, str]) -> dict[str, str]:
    if "content-md5" in fields:
        raise not_implemented("The field Content-MD5 of a form")
    headers = {
        name: value
        for name, value in fields.items()
        if name in _OF_OBJECTS or (name.startswith("x-amz-") and name not in _OF_SIGNATURES)
    }
    if "acl" in fields:
        headers["x-amz-acl"] = fields["acl"]
    # Web forms send their unused fields empty.
    return {name: header_value(name, value) for name, value in headers.items() if value}


def _accepted(request: Request, fields: Mapping[str, str], info: ObjectInfo) -> Response:
    location = f"http://{request.headers.get('host', '')}/{info.bucket}/{quote(info.key, safe='')}"
    headers = {**written_headers(info), "location": location}
    etag = f'"{info.etag}"'
    target = fields.get("success_action_redirect") or fields.get("redirect") or ""
    if urlsplit(target).scheme in ("http", "https") and urlsplit(target).netloc:
        parameters = urlencode({"bucket": info.bucket, "key": info.key, "etag": etag})
        # A header holds ASCII without spaces and controls.
        safe = quote(target, safe="%/:?#[]@!$&'()*+,;=~-._")
        headers["location"] = f"{safe}{'&' if '?' in target else '?'}{parameters}"
        return Response(303, headers)
    status = _STATUSES.get(fields.get("success_action_status", ""), 204)
    if status != 201:
        return Response(status, headers)
    inner = [
        text("Location", location),
        text("Bucket", info.bucket),
        text("Key", info.key),
        text("ETag", etag),
    ]
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{element("PostResponse", *inner)}'
    return Response(201, {**headers, "content-type": "application/xml"}, body.encode())


async def _drained(stream: AsyncIterator[bytes]) -> bool:
    size = 0
    try:
        async with asyncio.timeout(FIELDS_SECONDS):
            async for data in stream:
                size += len(data)
                if size > _MOST_DRAINED_BYTES:
                    return False
    except TimeoutError:
        return False
    return True


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
