"""Receives a request's body and checks it against its headers."""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sagehen.services.s3.http.checksums import ChecksumRequest, read_expected_checksum
from sagehen.services.s3.http.chunked import ChunkedDecoder
from sagehen.services.s3.http.exchange import S3Exchange
from sagehen.services.s3.storage.digests import (
    DEFAULT_ALGORITHM,
    Digest,
    base64_of,
    new_digest,
)
from sagehen.services.s3.storage.files import Draft
from sagehen.wire.errors import AwsError
from sagehen.wire.signatures.chunks import ChunkSignatures

__all__ = ["LARGEST_OBJECT_BYTES", "SMALL_BYTES", "BodyPlan", "plan_body", "read_document", "take"]

LARGEST_OBJECT_BYTES = 5 * 2**30
"""of one PUT or part"""
SMALL_BYTES = 256 * 2**10
"""Smaller bodies stay in memory."""

_BATCH_BYTES = 2**20
_MOST_DIGITS = 20
_LARGEST_DOCUMENT_BYTES = 8 * 2**20
_SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"

Result = TypeVar("Result")


@dataclass(frozen=True)
class BodyPlan:
    """The body as the headers describe it."""

    size: int
    """bytes, without the encoding of chunks"""
    chunked: bool
    signed_chunks: bool
    sha256: str | None
    md5: bytes | None
    expected: ChecksumRequest | None
    algorithm: str | None
    """of the checksum to keep"""
    trailers: dict[str, str] = field(default_factory=dict)
    """filled when the body has been read"""

    @property
    def sent_checksum(self) -> str | None:
        """Returns the client's checksum; a trailer's only after the body."""
        if self.expected is None:
            return None
        return self.expected.value or self.trailers.get(self.expected.header)


class _Sink(Protocol):
    size: int

    @property
    def md5(self) -> bytes: ...

    @property
    def checksum(self) -> str | None: ...

    def write(self, data: bytes) -> None: ...


class _Held:
    def __init__(self, algorithm: str | None) -> None:
        self.data = bytearray()
        self.size = 0
        self._algorithm = algorithm

    @property
    def md5(self) -> bytes:
        return hashlib.md5(self.data, usedforsecurity=False).digest()

    @property
    def checksum(self) -> str | None:
        if self._algorithm is None:
            return None
        digest = new_digest(self._algorithm)
        digest.update(bytes(self.data))
        return base64_of(digest.digest())

    def write(self, data: bytes) -> None:
        self.data += data
        self.size += len(data)


def plan_body(exchange: S3Exchange, algorithm: str | None = None) -> BodyPlan:
    """Raises AwsError for an unknown length, a body too large or malformed digests.

    Args:
        algorithm: of the checksum to keep; None keeps the client's, or the default.
    """
    # aws-chunked bodies have their decoded length in a separate header.
    is_encoded = exchange.identity.payload_mode.startswith("STREAMING-")
    if "content-length" not in exchange.headers and not is_encoded:
        raise _no_length("content-length")
    expected = read_expected_checksum(exchange.headers)
    if algorithm is None:
        algorithm = expected.algorithm if expected else DEFAULT_ALGORITHM
    return _plan(exchange, expected, algorithm, LARGEST_OBJECT_BYTES)


def _plan(
    exchange: S3Exchange, expected: ChecksumRequest | None, algorithm: str | None, largest: int
) -> BodyPlan:
    headers, mode = exchange.headers, exchange.identity.payload_mode
    chunked = mode.startswith("STREAMING-")
    size = _read_size(exchange, chunked)
    if size > largest:
        raise AwsError(
            "EntityTooLarge",
            "Your proposed upload exceeds the maximum allowed size",
            400,
            ProposedSize=size,
            MaxSizeAllowed=largest,
        )
    return BodyPlan(
        size=size,
        chunked=chunked,
        signed_chunks=mode.startswith(_SIGNED_CHUNKS),
        sha256=mode if len(mode) == 64 else None,
        md5=_read_md5(headers.get("content-md5")),
        expected=expected,
        algorithm=algorithm,
    )


async def take(exchange: S3Exchange, plan: BodyPlan, keep: Callable[[Draft], Result]) -> Result:
    """Writes the body to a draft, verifies it and calls `keep` in a thread.

    Raises AwsError and keeps nothing if the body is incomplete or wrong.
    """
    if plan.size <= SMALL_BYTES and not plan.chunked:
        data = await _whole(exchange, plan)

        def take_small() -> Result:
            draft = exchange.store.draft(plan.algorithm)
            try:
                intake = _Intake(exchange, plan, draft)
                intake.feed(data)
                intake.finish()
                return keep(draft)
            except BaseException:
                draft.discard()
                raise

        return await exchange.run(take_small)
    draft = await exchange.run(lambda: exchange.store.draft(plan.algorithm))
    try:
        intake = _Intake(exchange, plan, draft)
        await _pump(exchange, intake)

        def take_rest() -> Result:
            intake.finish()
            return keep(draft)

        return await exchange.run(take_rest)
    except BaseException:
        draft.discard()
        raise


async def read_document(exchange: S3Exchange, *, is_checked_later: bool = False) -> bytes:
    """Returns a small, verified document.

    Args:
        is_checked_later: the checksum headers do not describe this document.
    """
    expected = None if is_checked_later else read_expected_checksum(exchange.headers)
    algorithm = expected.algorithm if expected else None
    plan = _plan(exchange, expected, algorithm, _LARGEST_DOCUMENT_BYTES)
    held = _Held(plan.algorithm)
    intake = _Intake(exchange, plan, held)
    async for data in exchange.stream:
        intake.feed(data)
    intake.finish()
    return bytes(held.data)


class _Intake:
    """Writes a body as it arrives. Blocks: use in threads."""

    def __init__(self, exchange: S3Exchange, plan: BodyPlan, sink: _Sink) -> None:
        self._plan = plan
        self._sink = sink
        self._sha256 = hashlib.sha256() if plan.sha256 else None
        expected = plan.expected
        self._digest: Digest | None = None
        if expected is not None and expected.algorithm != plan.algorithm:
            self._digest = new_digest(expected.algorithm)
        self._decoder: ChunkedDecoder | None = None
        if plan.chunked:
            signatures = ChunkSignatures(exchange.identity) if plan.signed_chunks else None
            self._decoder = ChunkedDecoder(signatures)

    def feed(self, data: bytes) -> None:
        if self._sha256:
            self._sha256.update(data)
        if self._decoder is None:
            self._write(data)
            return
        for piece in self._decoder.feed(data):
            self._write(piece)

    def finish(self) -> None:
        plan = self._plan
        if self._decoder:
            self._decoder.finish()
            plan.trailers.update(self._decoder.trailers)
        if self._sink.size != plan.size:
            raise _incomplete()
        if self._sha256 and self._sha256.hexdigest() != plan.sha256:
            raise AwsError(
                "XAmzContentSHA256Mismatch",
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
                400,
                ClientComputedContentSHA256=plan.sha256,
                S3ComputedContentSHA256=self._sha256.hexdigest(),
            )
        if plan.md5 and self._sink.md5 != plan.md5:
            raise AwsError(
                "BadDigest",
                "The Content-MD5 you specified did not match what we received.",
                400,
                ExpectedDigest=base64_of(plan.md5),
                CalculatedDigest=base64_of(self._sink.md5),
            )
        self._check_checksum()

    def _check_checksum(self) -> None:
        expected, value = self._plan.expected, self._plan.sent_checksum
        if expected is None:
            return
        if value is None:
            raise AwsError(
                "MalformedTrailerError",
                f"The request was to have the trailer {expected.header}, and has not.",
                400,
            )
        digest = self._digest
        if value != (base64_of(digest.digest()) if digest else self._sink.checksum):
            raise AwsError(
                "BadDigest",
                f"The {expected.algorithm.upper()} you specified did not match the calculated "
                "checksum.",
                400,
            )

    def _write(self, data: bytes) -> None:
        if self._sink.size + len(data) > self._plan.size:
            raise _incomplete()
        self._sink.write(data)
        if self._digest:
            self._digest.update(data)


async def _whole(exchange: S3Exchange, plan: BodyPlan) -> bytes:
    pieces = []
    size = 0
    async for data in exchange.stream:
        pieces.append(data)
        size += len(data)
        if size > plan.size:
            raise _incomplete()
    return b"".join(pieces)


async def _pump(exchange: S3Exchange, intake: _Intake) -> None:
    working: asyncio.Task[None] | None = None
    pieces: list[bytes] = []
    size = 0
    try:
        async for data in exchange.stream:
            pieces.append(data)
            size += len(data)
            if size >= _BATCH_BYTES:
                if working:
                    await working
                working = _start(exchange, intake, pieces)
                pieces, size = [], 0
        if working:
            await working
        working = _start(exchange, intake, pieces)
        await working
    finally:
        # The thread must finish before the draft is discarded.
        if working and not working.done():
            await asyncio.wait([working])


def _start(exchange: S3Exchange, intake: _Intake, pieces: list[bytes]) -> asyncio.Task[None]:
    batch = b"".join(pieces)
    return asyncio.create_task(exchange.run(lambda: intake.feed(batch)))


def _read_size(exchange: S3Exchange, chunked: bool) -> int:
    name = "x-amz-decoded-content-length" if chunked else "content-length"
    text = exchange.headers.get(name)
    if text is None and not chunked and "transfer-encoding" not in exchange.headers:
        return 0
    if text is None or not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise _no_length(name)
    return int(text)


def _no_length(name: str) -> AwsError:
    return AwsError("MissingContentLength", f"You must provide the {name} HTTP header.", 411)


def _read_md5(header: str | None) -> bytes | None:
    if header is None:
        return None
    try:
        value = base64.b64decode(header, validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != 16:
        raise AwsError(
            "InvalidDigest",
            "The Content-MD5 you specified was invalid.",
            400,
            **{"Content-MD5": header},
        )
    return value


def _incomplete() -> AwsError:
    return AwsError(
        "IncompleteBody",
        "You did not provide the number of bytes specified by the Content-Length HTTP header.",
        400,
    )
