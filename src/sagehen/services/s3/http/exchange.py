"""The context of one S3 request."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import unquote, unquote_plus

from sagehen.frame.context import RequestContext
from sagehen.services.s3.errors import invalid_argument, speaking_s3
from sagehen.services.s3.storage import ObjectStore
from sagehen.services.s3.storage.digests import ALGORITHMS
from sagehen.wire.errors import AwsError
from sagehen.wire.http import Request, Response
from sagehen.wire.scope import Signing, signing_of
from sagehen.wire.signatures.sigv4 import Identity

__all__ = [
    "BodyStream",
    "Operation",
    "S3Exchange",
    "check_key",
    "header_value",
    "read_target",
    "with_hoisted_headers",
]

Result = TypeVar("Result")

MOST_KEY_BYTES = 1024

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LINK_PARAMETERS = (
    "algorithm",
    "content-sha256",
    "credential",
    "date",
    "expires",
    "security-token",
    "signature",
    "signedheaders",
)
_NOT_HOISTED = frozenset(
    f"x-amz-{name}"
    for name in (
        *_LINK_PARAMETERS,
        # The SDK for JavaScript signs links with the checksum of an empty body; S3 ignores it.
        "sdk-checksum-algorithm",
        *(f"checksum-{algorithm}" for algorithm in ALGORITHMS),
    )
)


class BodyStream:
    """The request's body, which records whether reading began."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.begun = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        self.begun = True
        return self._chunks


@dataclass(frozen=True)
class S3Exchange:
    """The context of an operation; `bucket` and `key` are empty if the path lacks them."""

    request: Request
    query: Mapping[str, str]
    bucket: str
    key: str
    stream: BodyStream
    call: RequestContext
    identity: Identity

    @property
    def headers(self) -> Mapping[str, str]:
        return self.request.headers

    @property
    def store(self) -> ObjectStore:
        store: ObjectStore = self.call.objects
        return store

    async def run(self, work: Callable[[], Result]) -> Result:
        """Runs blocking work in a thread; translates store errors."""
        with speaking_s3(self.bucket, self.key, self.query.get("uploadId", "")):
            return await asyncio.to_thread(work)


Operation = Callable[[S3Exchange], Awaitable[Response]]


def read_target(request: Request) -> tuple[str, str, dict[str, str]]:
    """Splits a path-style request; decodes the path first, as signature checks do.

    Raises AwsError InvalidURI, KeyTooLongError, InvalidArgument.
    """
    try:
        path = unquote(request.raw_path, errors="strict")
        query = _read_query(request.raw_query)
    except UnicodeDecodeError:
        raise AwsError(
            "InvalidURI", "Couldn't parse the specified URI: it is not UTF-8.", 400
        ) from None
    bucket, _, key = path.lstrip("/").partition("/")
    check_key(key)
    return bucket, key, query


def check_key(key: str) -> None:
    """Raises AwsError KeyTooLongError."""
    if (size := len(key.encode())) > MOST_KEY_BYTES:
        raise AwsError(
            "KeyTooLongError",
            "Your key is too long",
            400,
            Size=size,
            MaxSizeAllowed=MOST_KEY_BYTES,
        )


def with_hoisted_headers(request: Request, query: Mapping[str, str]) -> Request:
    """Adds the headers that a presigned URL carries as parameters.

    Conditions count in SigV4 links only: SigV2 leaves them unsigned, so anyone could add some.

    Raises AwsError InvalidArgument for repeated or invalid ones.
    """
    signing = signing_of(request)
    if signing not in (Signing.LINK, Signing.OLD_LINK):
        return request
    hoisted: dict[str, str] = {}
    for name, value in query.items():
        header = name.lower()
        is_condition = signing is Signing.LINK and header in ("if-match", "if-none-match")
        if not is_condition and (not header.startswith("x-amz-") or header in _NOT_HOISTED):
            continue
        hoisted_value = header_value(name, value)
        if {**hoisted, **request.headers}.get(header, hoisted_value) != hoisted_value:
            raise invalid_argument("The header comes more than once.", name, value)
        hoisted[header] = hoisted_value
    return replace(request, headers={**hoisted, **request.headers}) if hoisted else request


def header_value(name: str, value: str) -> str:
    """Raises AwsError InvalidArgument."""
    if not _HEADER_NAME.fullmatch(name.lower()) or _CONTROL.search(value):
        raise invalid_argument("Invalid header name or value.", name, value)
    # Received headers have one character per byte.
    return value.encode().decode("latin-1")


def _read_query(raw: str) -> dict[str, str]:
    query: dict[str, str] = {}
    for pair in raw.split("&") if raw else ():
        raw_name, _, raw_value = pair.partition("=")
        name = unquote_plus(raw_name, errors="strict")
        value = unquote_plus(raw_value, errors="strict")
        # Signatures do not cover the order, so anyone could swap repeated parameters.
        if query.setdefault(name, value) != value:
            raise invalid_argument("The parameter comes more than once.", name, value)
    return query
